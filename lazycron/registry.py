"""The tasks this process knows, by name."""

import threading
from collections.abc import Iterator

from lazycron.errors import DuplicateTaskError, UnknownTaskError
from lazycron.tasks import Task


class Registry:
    """A mapping from name to task that only grows; `version` tells whether it has."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """A number that changes with every registration."""
        return len(self._tasks)

    def add(self, task: Task) -> None:
        """Register a task; raises DuplicateTaskError where another function has its name."""
        with self._lock:
            known = self._tasks.get(task.name)
            if known is not None:
                message = (
                    f"task name {task.name!r} is taken by {_place(known)}; "
                    f"give {_place(task)} another name="
                )
                raise DuplicateTaskError(message)
            self._tasks = {**self._tasks, task.name: task}

    def get(self, name: str) -> Task | None:
        """Return the task of this name, if it is known."""
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task:
        """Return the task of this name; raises UnknownTaskError, which lists the known ones."""
        task = self._tasks.get(name)
        if task is None:
            known = ", ".join(sorted(self._tasks)) or "none"
            message = f"no task is named {name!r}; known are: {known}"
            raise UnknownTaskError(message)
        return task

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Task]:
        # A copy: a task may be registered by a request while a tick iterates.
        return iter(tuple(self._tasks.values()))


def _place(task: Task) -> str:
    function = task.function
    return f"{function.__module__}.{getattr(function, '__qualname__', function.__name__)}"
