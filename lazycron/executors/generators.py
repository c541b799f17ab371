"""Drive a generator: each yield is a checkpoint, and a place where the run may be paused."""

from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

from lazycron.model.run import Run

Pause = Callable[[], bool]


def never() -> bool:
    """Never ask a run to pause."""
    return False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: with a value or an error, or paused.

    `real` marks a cancellation that came from outside the task.
    """

    value: Any = None
    error: BaseException | None = None
    real: bool = False
    paused: bool = False


def drive(generator: Generator[Any, Any, Any], run: Run, pause: Pause) -> Ended:
    """Run a generator until it ends or is paused.

    A value that is not a checkpoint raises an error at its `yield`. The generator's value is what
    it returns, else the last text it yielded.
    """
    last = None
    try:
        value = next(generator)
        while True:
            try:
                _keep(run, value)
            except Exception as error:  # noqa: BLE001 - raised where the generator can see it
                value = generator.throw(error)
                continue
            last = value if isinstance(value, str) else last
            if pause():
                generator.close()
                return Ended(value=last, paused=True)
            value = next(generator)
    except StopIteration as end:
        return Ended(value=last if end.value is None else end.value)


async def adrive(generator: AsyncGenerator[Any, Any], run: Run, pause: Pause) -> Ended:
    """Do what `drive` does, for an async generator (which returns nothing)."""
    last = None
    try:
        value = await anext(generator)
        while True:
            try:
                if value is not None:
                    await run.acheckpoint(value)
            except Exception as error:  # noqa: BLE001 - raised where the generator can see it
                value = await generator.athrow(error)
                continue
            last = value if isinstance(value, str) else last
            if pause():
                await generator.aclose()
                return Ended(value=last, paused=True)
            value = await anext(generator)
    except StopAsyncIteration:
        return Ended(value=last)


def _keep(run: Run, value: object) -> None:
    # A bare `yield` only offers a place to pause.
    if value is not None:
        run.checkpoint(value)
