"""The tasks this process knows, by name."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lazycron.errors import DuplicateTaskError, ScheduleError, UnknownTaskError
from lazycron.model.retry import Retry
from lazycron.model.settle import RECURRING, Claim, Policy
from lazycron.model.task import Task
from lazycron.schedules.shaped import Schedule, in_zone, parse


class Registry:
    """A mapping from name to task that only grows; `version` tells whether it has.

    `installation` is the id that jitter depends on; it is set when the database is first asked.
    """

    def __init__(self) -> None:
        self.installation = ""
        self._tasks: dict[str, Task] = {}
        # The names by trigger, and the tasks they were made from: needed before each claim.
        self._barred: tuple[dict[str, Task], dict[str, frozenset[str]]] = ({}, {})
        # Names of tasks that leave a setting to the LazyCron, which may be configured later.
        self._without: dict[str, set[str]] = {"retry": set(), "tz": set()}
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """A number that changes with every registration."""
        return len(self._tasks)

    @property
    def names(self) -> frozenset[str]:
        """The names known at this moment."""
        return frozenset(self._tasks)

    def add(self, task: Task, *, without: Iterable[str] = ()) -> None:
        """Register a task; raises DuplicateTaskError where its name is taken.

        `without` names the settings that it leaves to the LazyCron: "retry", "tz".
        """
        with self._lock:
            known = self._tasks.get(task.name)
            if known is not None:
                message = (
                    f"task name {task.name!r} is taken by {_place(known)}; "
                    f"give {_place(task)} another name=. A task is registered once, where its code "
                    "is imported; a request enqueues a job of it instead"
                )
                raise DuplicateTaskError(message)
            self._tasks = {**self._tasks, task.name: task}
            for setting in without:
                self._without[setting].add(task.name)

    def configure(self, retry: Retry, tz: str) -> None:
        """Give the tasks that left a setting to the LazyCron its current value."""
        with self._lock:
            self._tasks = {
                name: self._configured(task, retry, tz) for name, task in self._tasks.items()
            }

    def _configured(self, task: Task, retry: Retry, tz: str) -> Task:
        if task.name in self._without["retry"]:
            task = replace(task, retry=retry)
        if task.name in self._without["tz"] and task.schedule is not None:
            task = replace(task, schedule=in_zone(task.schedule, tz))
        return task

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

    @property
    def is_jittered(self) -> bool:
        """Whether any schedule depends on the installation."""
        return any(task.schedule is not None and task.schedule.is_jittered for task in self)

    def seeded(self, name: str, schedule: Schedule) -> Schedule:
        """Return a schedule for this task of this installation."""
        return schedule.seeded(f"{self.installation}\n{name}")

    def schedule_of(self, name: str, text: str) -> Schedule:
        """Read the schedule a task's row holds; raises ScheduleError where it cannot be read."""
        task = self._tasks.get(name)
        own = task.schedule if task else None
        found = own if own is not None and own.text == text else parse(text)
        return self.seeded(name, found)

    def barred_from(self, trigger: str) -> frozenset[str]:
        """Return the names of the tasks that a tick of this trigger may not run."""
        tasks, barred = self._tasks, self._barred
        if barred[0] is not tasks:
            barred = self._barred = (tasks, {})
        if trigger not in barred[1]:
            names = (task.name for task in tasks.values() if not task.runs_on(trigger))
            barred[1][trigger] = frozenset(names)
        return barred[1][trigger]

    def policy_of(self, claim: Claim) -> Policy:
        """Return a claim's policy: its task's, with the schedule the row was claimed with.

        A row whose task is unknown here gets the defaults.
        """
        task = self._tasks.get(claim.name)
        policy = task.policy if task else Policy(schedule=None, retry=Retry())
        if claim.key == RECURRING:
            return replace(policy, schedule=self._claimed_with(claim, policy.schedule))
        return policy if policy.schedule is None else replace(policy, schedule=None)

    def _claimed_with(self, claim: Claim, own: Schedule | None) -> Schedule | None:
        """Read the schedule a row was claimed with; the code's where the row's cannot be read."""
        try:
            return self.schedule_of(claim.name, claim.schedule)
        except ScheduleError:
            return own and self.seeded(claim.name, own)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Task]:
        # A copy: a task may be registered by a request while a tick iterates.
        return iter(tuple(self._tasks.values()))


def _place(task: Task) -> str:
    function = task.function
    module = getattr(function, "__module__", None) or "builtins"
    return f"{module}.{getattr(function, '__qualname__', function.__name__)}"
