"""The thread executor: the tick's own thread calls the function, and no error escapes."""

import inspect
from collections.abc import Callable
from typing import Any

from lazycron.executors.base import Execution
from lazycron.executors.generators import Ended, adrive, drive
from lazycron.executors.outcome import failed, to_outcome
from lazycron.model.arguments import Arguments, complete_call, read_arguments
from lazycron.model.settle import Outcome
from lazycron.model.task import Task


class ThreadExecutor:
    """Calls the task's function in the thread of the tick."""

    def execute(
        self, task: Task, execution: Execution, arguments: Arguments | str | None
    ) -> Outcome:
        """Call the task's function with its arguments, or their JSON; return the outcome.

        Whatever the function raises, SystemExit and its kind included, is a failure. A real
        interruption is also in `Outcome.interrupted`, to be obeyed once the outcome is recorded.
        """
        begun = execution.monotonic()
        ended = _call(task, arguments, execution)
        ms = max(0, round((execution.monotonic() - begun) * 1000))
        try:
            return to_outcome(ended, ms, execution)
        except BaseException as error:  # noqa: BLE001 - a value's methods may raise, a signal may come
            return failed(Ended(error=error), ms, execution)


def _call(task: Task, given: Arguments | str | None, execution: Execution) -> Ended:
    try:
        with execution.inside():
            # Read here: a text that cannot be read is only this job's failure.
            arguments = given if isinstance(given, Arguments) else read_arguments(given)
            positional, named = complete_call(
                task.function, task.run_parameter, execution.run, arguments
            )
            return _drive(task, execution, lambda: task.function(*positional, **named))
    except BaseException as error:  # noqa: BLE001 - no task may stop another, or the server
        return Ended(error=error)


def _drive(task: Task, execution: Execution, call: Callable[[], Any]) -> Ended:
    """Call the function and finish what it returns: a generator, a coroutine or a value."""
    if task.is_async:
        return execution.bridge(call)
    value = call()
    if inspect.isgenerator(value):
        return drive(value, execution.run, execution.pause)
    if inspect.isasyncgen(value):
        return execution.bridge(lambda: adrive(value, execution.run, execution.pause))
    if inspect.iscoroutine(value):
        # A plain decorator may hide a coroutine function.
        return execution.bridge(lambda: value)
    return Ended(value=value)
