"""How many jobs a second lazycron enqueues and runs, beside raw drivers and other queues.

    python -m benchmarks.jobs

Jobs that do nothing, each enqueued by a call and a commit of its own, and run one by one with what
the queue keeps of them: lazycron a lease and a history row. Every contestant lives in a process of
its own; rounds are interleaved and medians taken, and what counts are ratios. What is not installed
(benchmarks/requirements.txt) is said and left out.
"""

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Literal, get_args

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from benchmarks.contestants import (
    FULL,
    NORMAL,
    Contestant,
    Huey,
    Lazycron,
    PgQueuer,
    Procrastinate,
    RawPsycopg,
    RawSqlite,
    django_on_postgresql,
    django_on_sqlite,
)

VARIABLE = "LAZYCRON_TEST_POSTGRES"
ADDRESS = os.environ.get(VARIABLE, "postgresql+psycopg://postgres@127.0.0.1/postgres")
Kind = Literal["SQLite", "PostgreSQL"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Place:
    """Where a contestant keeps its jobs: a file, or a database on the server."""

    file: str
    url: str

    @property
    def conninfo(self) -> str:
        """The server's database, as psycopg itself reads it."""
        return self.url.replace("postgresql+psycopg:", "postgresql:")


@dataclass(frozen=True)
class Entry:
    """A contestant: on which database, what it needs, how it is made, and at which pace."""

    kind: Kind
    package: str
    make: Callable[[Place], Contestant]
    slowness: int = 1


def _lazycron(synchronous: str, tick: int | None = None) -> Callable[[Place], Contestant]:
    return lambda place: Lazycron(f"sqlite:///{place.file}", synchronous, tick=tick)


DJANGO = "django_tasks_db"
ENTRIES: Mapping[str, Entry] = {
    "raw NORMAL": Entry("SQLite", "sqlite3", lambda place: RawSqlite(place.file, NORMAL)),
    "raw FULL": Entry("SQLite", "sqlite3", lambda place: RawSqlite(place.file, FULL)),
    "lazycron NORMAL": Entry("SQLite", "lazycron", _lazycron(NORMAL)),
    "lazycron NORMAL, ticks of 3": Entry("SQLite", "lazycron", _lazycron(NORMAL, 3)),
    "lazycron FULL": Entry("SQLite", "lazycron", _lazycron(FULL)),
    "Huey NORMAL": Entry("SQLite", "huey", lambda place: Huey(place.file, NORMAL)),
    "Huey FULL": Entry("SQLite", "huey", lambda place: Huey(place.file, FULL)),
    "django-tasks NORMAL": Entry(
        "SQLite", DJANGO, lambda place: django_on_sqlite(place.file), slowness=4
    ),
    "raw psycopg": Entry("PostgreSQL", "psycopg", lambda place: RawPsycopg(place.conninfo)),
    "lazycron": Entry("PostgreSQL", "psycopg", lambda place: Lazycron(place.url)),
    "lazycron, ticks of 3": Entry(
        "PostgreSQL", "psycopg", lambda place: Lazycron(place.url, tick=3)
    ),
    "Procrastinate": Entry(
        "PostgreSQL", "procrastinate", lambda place: Procrastinate(place.conninfo)
    ),
    "PgQueuer, batches of 1": Entry(
        "PostgreSQL", "pgqueuer", lambda place: PgQueuer(place.conninfo, 1)
    ),
    "PgQueuer, batches of 10": Entry(
        "PostgreSQL", "pgqueuer", lambda place: PgQueuer(place.conninfo, 10)
    ),
    "django-tasks": Entry(
        "PostgreSQL", DJANGO, lambda place: django_on_postgresql(place.url), slowness=4
    ),
}


@dataclass(frozen=True)
class Goal:
    """A ratio that is wanted, and the least that is put up with."""

    verb: Literal["enqueue", "run"]
    ours: str
    theirs: str
    goal: float
    floor: float


# django-tasks on PostgreSQL is measured, and no goal: a twentieth of what a run takes there is one
# commit, and each run has one.
GOALS = (
    Goal("enqueue", "lazycron NORMAL", "Huey NORMAL", 0.5, 0.35),
    Goal("run", "lazycron NORMAL", "Huey NORMAL", 0.6, 0.35),
    Goal("run", "lazycron FULL", "Huey FULL", 0.9, 0.6),
    Goal("run", "lazycron NORMAL", "django-tasks NORMAL", 20, 10),
    Goal("enqueue", "lazycron", "Procrastinate", 1.5, 1),
    Goal("run", "lazycron", "Procrastinate", 3, 2),
)
PEERS = ("huey", "procrastinate", "pgqueuer", "django-tasks-db")


class Child:
    """A contestant's process, which does what it is told and answers with seconds."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jobs", "--contestant", name, place.file, place.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._hear()

    def do(self, verb: str, number: int) -> float:
        """Let it enqueue or run so many jobs; return how many that is a second."""
        assert self._process.stdin
        print(verb, number, file=self._process.stdin, flush=True)
        return number / self._hear()

    def _hear(self) -> float:
        assert self._process.stdout
        answer = self._process.stdout.readline()
        if not answer:
            message = f"{self.name} has ended with {self._process.wait()}"
            raise RuntimeError(message)
        return float(answer)

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def serve(name: str, place: Place) -> None:
    """Be a contestant: a line "enqueue 1000" or "run 1000" in, the seconds it took out."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a peer prints must not get between
    contestant = ENTRIES[name].make(place)
    print(0, file=answers)
    done = 0
    for line in sys.stdin:
        verb, number = line.split()
        begun = perf_counter()
        if verb == "enqueue":
            contestant.enqueue(int(number))
        else:
            contestant.run()
        seconds = perf_counter() - begun
        if verb == "run":
            done += int(number)
            assert contestant.history() == done, f"{name} has run {contestant.history()} of {done}"
        print(seconds, file=answers)
    os._exit(0)  # some would rather not end by themselves


def has_postgresql() -> bool:
    """Tell whether the server is there, and say so where it is not."""
    try:
        create_engine(ADDRESS).connect().close()
    except OperationalError as error:
        print(f"no PostgreSQL at {ADDRESS} (set {VARIABLE}): {error.orig}")
        return False
    return True


@contextmanager
def database(number: int) -> Iterator[str]:
    """Make a database of a contestant's own on the server, and return its URL."""
    name = f"lazycron_bench_{os.getpid()}_{number}"
    admin = create_engine(ADDRESS, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(ADDRESS).set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


def measure(names: list[str], rounds: int, number: int) -> dict[tuple[str, str], float]:
    """Return the medians of each contestant's enqueue/s and run/s."""
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        children = []
        for count, name in enumerate(names):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            on_server = ENTRIES[name].kind == "PostgreSQL"
            url = stack.enter_context(database(count)) if on_server else ""
            child = Child(name, Place(str(folder / "bench.db"), url))
            stack.callback(child.close)
            children.append(child)
        for turn in range(-1, rounds):  # the first only warms up
            # Each round begins with another one, so that none always comes after the same.
            first = turn % len(children)
            for child in children[first:] + children[:first]:
                jobs = max(20, number // ENTRIES[child.name].slowness // (10 if turn < 0 else 1))
                for verb in ("enqueue", "run"):
                    pace = child.do(verb, jobs)
                    if turn >= 0:
                        found.setdefault((child.name, verb), []).append(pace)
    return {what: statistics.median(paces) for what, paces in found.items()}


def tell(kind: Kind, names: list[str], medians: Mapping[tuple[str, str], float]) -> None:
    """Print a table for one database."""
    first = names[0]
    print(f"\n| {kind} | enqueue/s | run/s | run, of {first} |\n|---|---:|---:|---:|")
    for name in names:
        enqueued, ran = medians[name, "enqueue"], medians[name, "run"]
        print(f"| {name} | {enqueued:,.0f} | {ran:,.0f} | {ran / medians[first, 'run']:.2f} |")


def judge(medians: Mapping[tuple[str, str], float]) -> bool:
    """Print each goal's ratio; return whether every floor is kept."""
    kept = True
    print("\n| ratio | goal | floor | found |\n|---|---:|---:|---:|")
    for one in GOALS:
        ours, theirs = medians.get((one.ours, one.verb)), medians.get((one.theirs, one.verb))
        if ours is None or theirs is None:
            continue
        ratio = ours / theirs
        missed = " (missed)" if ratio < one.goal else ""
        said = " (below the floor)" if ratio < one.floor else missed
        kept = kept and ratio >= one.floor
        what = f"{one.verb}/s, {one.ours} / {one.theirs}"
        print(f"| {what} | {one.goal} | {one.floor} | {ratio:.2f}{said} |")
    return kept


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in ("SQLAlchemy", "psycopg", "Django", *PEERS):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> int:
    """Compare what is installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--number", type=int, default=1000, help="jobs in a round")
    parser.add_argument("--only", default="", help="contestants whose name contains this")
    parser.add_argument("--floor", action="store_true", help="fail where a floor is not kept")
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.contestant:
        name, file, url = chosen.contestant
        serve(name, Place(file, url))
        return 0
    missing = sorted({one.package for one in ENTRIES.values() if find_spec(one.package) is None})
    if missing:
        install = shlex.join(["pip", "install", "-r", "benchmarks/requirements.txt"])
        print(f"not installed, so left out: {', '.join(missing)} ({install}, or make bench-peers)")
    print(f"{_versions()}; {os.cpu_count()} cores, {platform.system()} {platform.machine()}")
    there = {
        name: one
        for name, one in ENTRIES.items()
        if one.package not in missing and chosen.only.lower() in name.lower()
    }
    medians: dict[tuple[str, str], float] = {}
    for kind in KINDS:
        names = [name for name, one in there.items() if one.kind == kind]
        if names and (kind == "SQLite" or has_postgresql()):
            found = measure(names, chosen.rounds, chosen.number)
            tell(kind, names, found)
            medians |= found
    return 1 if not judge(medians) and chosen.floor else 0


if __name__ == "__main__":
    sys.exit(main())
