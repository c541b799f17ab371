"""How a run's checkpoints are shown: as a bar on a terminal, as lines in a pipe."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lazycron.cli.output import in_json, on_terminal, say
from lazycron.texts import visible
from lazycron.tick.tick import tell_nobody

BETWEEN_LINES = 1.0
LONGEST = 40

Progressed = Callable[[str, int | None, int | None], None]


def in_words(progress: object, done: int | None, total: int | None) -> str:
    """Write the last checkpoint in a few words; an empty text where there is none."""
    if done is not None:
        return f"{done} of {total}" if total is not None else f"{done} done"
    if progress is None:
        return ""
    text = in_json(progress)
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


@contextmanager
def watched(*, silent: bool) -> Iterator[Progressed]:
    """Give the function that shows each checkpoint, for the time of one run."""
    if silent:
        yield tell_nobody
    elif on_terminal():
        with _bar() as progressed:
            yield progressed
    else:
        yield Lines()


class Lines:
    """Prints a checkpoint as a line, once a second at most, and the last one in any case."""

    def __init__(self) -> None:
        self._again_at = 0.0

    def __call__(self, name: str, done: int | None, total: int | None) -> None:
        """Print how far a run has come, if it says so in numbers."""
        if done is None or (time.monotonic() < self._again_at and done != total):
            return
        self._again_at = time.monotonic() + BETWEEN_LINES
        # The run must not fail because the pipe's reader has gone.
        with suppress(OSError):
            say(f"{name}  {in_words(None, done, total)}")


@contextmanager
def _bar() -> Iterator[Progressed]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # The bar disappears when the run is over; the table then says how it went.
    with Progress(*columns, transient=True) as progress:
        bars: dict[str, TaskID] = {}

        def progressed(name: str, done: int | None, total: int | None) -> None:
            if done is None:
                return
            if name not in bars:
                bars[name] = progress.add_task(visible(name), total=total)
            progress.update(bars[name], completed=done, total=total)

        yield progressed
