"""Real processes for tests: each does what it is told through a pipe, and can be killed."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PATIENCE = 30.0
# A server process that has imported everything forks the others: a fresh process in ten
# milliseconds, without a thread, a lock or a connection of the test's own process.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "alembic.command",
        "lazycron.asgi",
        "lazycron.cli.command",
        "lazycron.testing",
        "psycopg",
        "pymysql",
        "sqlalchemy.dialects.mysql.pymysql",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite",
    ]
)


class Wire:
    """A process's end of the pipe: words with a value, said and awaited in turn."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self.pipe = pipe

    def say(self, word: str, value: object = None) -> None:
        """Tell the other side."""
        self.pipe.send((word, value))

    def hear(self) -> tuple[str, Any]:
        """Wait for the other side's next word; fails after half a minute."""
        assert self.pipe.poll(PATIENCE), "the other process said nothing for half a minute"
        word, value = self.pipe.recv()
        return word, value

    def expect(self, wanted: str) -> Any:  # noqa: ANN401 - whatever was said
        """Wait for this word, and return its value."""
        word, value = self.hear()
        assert word == wanted, f"wanted {wanted}, heard {word}: {value}"
        return value

    def halt_here(self, word: str) -> None:
        """Say where this process has come to, and go no further until told."""
        self.say(word)
        self.expect("go on")


class Child(Wire):
    """Another process, which runs `target(wire, *values)`."""

    def __init__(self, target: Callable[..., None], *values: object) -> None:
        ours, theirs = CONTEXT.Pipe()
        super().__init__(ours)
        self.process = CONTEXT.Process(target=_live, args=(target, theirs, values), daemon=True)
        self.process.start()
        theirs.close()

    def kill(self) -> None:
        """Kill it with signal 9, and wait until it is gone."""
        self.process.kill()
        self.process.join(PATIENCE)
        assert self.process.exitcode == -signal.SIGKILL
        self.pipe.close()

    def terminate(self) -> None:
        """Send it the signal a server is stopped with."""
        self.process.terminate()

    def end(self) -> None:
        """Wait for its own end, which must be a good one."""
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0
        self.pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.is_alive():
            self.process.kill()
            self.process.join(PATIENCE)


def _live(
    target: Callable[..., None], pipe: "Connection[Any, Any]", values: tuple[object, ...]
) -> None:
    wire = Wire(pipe)
    try:
        target(wire, *values)
    except BaseException:  # told where it can be read, and the exit code tells as well
        wire.say("error", traceback.format_exc())
        raise


@contextmanager
def children(number: int, target: Callable[..., None], *values: object) -> Iterator[list[Child]]:
    """Start several processes alike; none outlives the block."""
    started = [Child(target, *values) for _ in range(number)]
    try:
        yield started
    finally:
        for child in started:
            child.__exit__()


def rounds() -> int:
    """Return how many rounds a race goes: LAZYCRON_RACE_ROUNDS, one by default."""
    return int(os.environ.get("LAZYCRON_RACE_ROUNDS", "1"))
