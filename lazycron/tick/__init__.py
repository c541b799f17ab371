"""One bounded look at the due rows, and every step of it."""
