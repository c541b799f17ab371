"""A guestbook whose chores are done by lazycron; `make run` serves it."""
