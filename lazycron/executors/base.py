"""The interface of every executor: a task and its run go in, an outcome comes out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lazycron.executors.bridge import Bridge
from lazycron.executors.generators import Pause, never
from lazycron.model.arguments import Arguments
from lazycron.model.run import Run
from lazycron.model.settle import Outcome
from lazycron.model.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What one run needs besides its task: the function's arguments, the times and the bridge.

    `interrupted` tells whether a signal handler of ours has fired: only then a KeyboardInterrupt or
    SystemExit is a real one. `pause` tells whether a generator should pause. `inside` is a block
    in which every error is caught and becomes an outcome.
    """

    run: Run
    started_at: datetime
    monotonic: Callable[[], float]
    bridge: Bridge
    interrupted: Callable[[], bool]
    pause: Pause = never
    inside: Callable[[], AbstractContextManager[None]] = nullcontext


class Executor(Protocol):
    """Turns a claimed run into its outcome. The tick claims before it and records after it."""

    def execute(
        self, task: Task, execution: Execution, arguments: Arguments | str | None
    ) -> Outcome:
        """Run the task's function with its arguments, or their JSON; return the outcome.

        No error of the function is raised here: it becomes a failed outcome.
        """
