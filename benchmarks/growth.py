"""What a tick costs among few rows and among many: it must not grow with the tables.

    python -m benchmarks.growth                    10, 1,000 and 100,000 rows, and as many runs
    python -m benchmarks.growth --sizes 10 1000000 --databases sqlite

Each size has a database of its own, with twenty recurring tasks, so many jobs that wait, and as
many runs in the history. Rounds are interleaved: every size in each round, so that what disturbs
one disturbs all. Printed are medians, and the median of each round's ratio to the smallest size.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter

from sqlalchemy import URL, create_engine, insert, make_url, text, update
from sqlalchemy.exc import OperationalError

from lazycron import LazyCron
from lazycron.app import parts_of
from lazycron.clock import EPOCH, SystemClock
from lazycron.migrate import migrate
from lazycron.model.settle import Outcome, Policy, Settlement, Status, settle
from lazycron.schema import scheduled_task, task_run
from lazycron.store import Stamp, new_token
from lazycron.store.driver.engine import open_engine

SERVERS = {
    "postgresql": ("LAZYCRON_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1/postgres"),
    "mariadb": ("LAZYCRON_TEST_MARIADB", "mariadb+pymysql://root@127.0.0.1/mysql"),
}
ANALYZE = {
    "sqlite": ["ANALYZE"],
    "postgresql": ["ANALYZE"],
    "mariadb": ["ANALYZE TABLE scheduled_task, task_run"],
}
TASKS = [f"task_{number}" for number in range(20)]
JOB = "job"
SLICE = 10_000
GOAL = 1.2
ROUNDS = 200
WARM_UP = 10
now = SystemClock().now


@contextmanager
def database(kind: str, folder: Path, size: int) -> Iterator[URL]:
    """Make a database, and drop it in the end."""
    if kind == "sqlite":
        yield make_url(f"sqlite:///{folder}/{size}.db")
        return
    variable, default = SERVERS[kind]
    address = make_url(os.environ.get(variable, default))
    name = f"lazycron_growth_{os.getpid()}_{size}"
    admin = create_engine(address, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield address.set(database=name)
    finally:
        force = " WITH (FORCE)" if kind == "postgresql" else ""
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}{force}"))
        admin.dispose()


def fill(url: URL, size: int) -> None:
    """Put so many waiting jobs and so many runs into the tables."""
    engine = open_engine(url)
    migrate(engine)
    begun = now()
    for first in range(0, size, SLICE):
        numbers = range(first, min(first + SLICE, size))
        with engine.begin() as connection:
            connection.execute(insert(scheduled_task), [_job(begun, n) for n in numbers])
            connection.execute(insert(task_run), [_run(begun, n) for n in numbers])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in ANALYZE[url.get_backend_name()]:
            connection.execute(text(statement))
    engine.dispose()


def _job(begun: datetime, number: int) -> dict[str, object]:
    due = begun + timedelta(days=1, seconds=number)
    return {"name": JOB, "next_run_at": due, "scheduled_for": due, "created_at": begun}


def _run(begun: datetime, number: int) -> dict[str, object]:
    # Spread over the last ten days: there is nothing to prune by age.
    started_at = begun - timedelta(days=10) * (number % 9973) / 9973
    return {
        "name": JOB,
        "job_id": number,
        "scheduled_for": started_at,
        "started_at": started_at,
        "finished_at": started_at,
        "duration_ms": 1,
        "status": "ok",
        "trigger": "traffic",
        "attempt": 1,
    }


class Subject:
    """A LazyCron on a database of one size, and the steps to be timed."""

    def __init__(self, url: URL, folder: Path, size: int) -> None:
        self.cron = LazyCron(url, state_file=folder / f"{size}.json", create_tables=False)
        for name in TASKS:
            self.cron.task(every="1d", name=name)(lambda: None)
        self.cron.task(name=JOB)(lambda: None)
        self.cron.sync()
        self.store = parts_of(self.cron).store
        self.claimed: Settlement | None = None

    def make_due(self) -> None:
        """Make one recurring row due; not timed."""
        due = now() - timedelta(seconds=1)
        row = update(scheduled_task).where(
            scheduled_task.c.key == "", scheduled_task.c.name == TASKS[0]
        )
        with self.store.engine.begin() as connection:
            connection.execute(row.values(next_run_at=due, scheduled_for=due))

    def tick(self) -> None:
        """Run the one due row, in a visitor's tick."""
        assert len(self.cron.run_due("traffic").runs) == 1

    def idle_tick(self) -> None:
        """Find nothing due."""
        assert not self.cron.run_due("traffic").runs

    def claim(self) -> None:
        """Claim the one due row."""
        moment = now()
        stamp = Stamp(
            due=moment, start=moment, token=new_token(), by="h:1", trigger="cli", floor=EPOCH
        )
        claim = self.store.claim(stamp)
        assert claim is not None
        policy: Policy = self.cron.registry.policy_of(claim)
        ended = Outcome(status=Status.OK, ms=1)
        self.claimed = settle(claim, ended, policy, now=moment, earliest=moment)

    def record(self) -> None:
        """Record it with its history row."""
        assert self.claimed is not None
        self.store.record(self.claimed, None)

    def next_due(self) -> None:
        """Ask when anything is due."""
        self.store.next_due()

    def prune(self) -> None:
        """Look for what is to be pruned, by number and by age."""
        self.store.history.prune_beyond(TASKS[0], 100)
        self.store.history.prune_older(now() - timedelta(days=30))


STEPS: dict[str, tuple[Callable[[Subject], None], bool]] = {
    "tick, one due": (Subject.tick, True),
    "tick, none due": (Subject.idle_tick, False),
    "claim": (Subject.claim, True),
    "record": (Subject.record, False),
    "next due": (Subject.next_due, False),
    "prune": (Subject.prune, False),
}
Times = dict[tuple[str, int], list[float]]


def measure(subjects: dict[int, Subject], rounds: int) -> Times:
    """Time every step on every size in each round, the first size a different one each time."""
    times: Times = {(step, size): [] for step in STEPS for size in subjects}
    sizes = list(subjects)
    for number in range(-WARM_UP, rounds):
        sizes.append(sizes.pop(0))
        for step, (run, needs_due) in STEPS.items():
            for size in sizes:
                if needs_due:
                    subjects[size].make_due()
                begun = perf_counter()
                run(subjects[size])
                if number >= 0:
                    times[step, size].append(perf_counter() - begun)
    return times


def show(kind: str, sizes: list[int], times: Times) -> bool:
    """Print a table; tells whether the goal is met."""
    print(f"\n{kind}, ms" + "".join(f"{size:>14,}" for size in sizes) + "   of the smallest")
    met = True
    for step in STEPS:
        line = f"{step:<16}"
        ratios = []
        for size in sizes:
            line += f"{statistics.median(times[step, size]) * 1000:>14.3f}"
            paired = zip(times[step, size], times[step, sizes[0]], strict=True)
            ratios.append(statistics.median(one / smallest for one, smallest in paired))
        met = met and (step != "tick, one due" or max(ratios) <= GOAL)
        print(line + "   " + "  ".join(f"{ratio:.2f}" for ratio in ratios[1:]))
    return met


def main() -> None:
    """Measure what was asked for, and say whether a tick grows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--databases", nargs="+", default=["sqlite", *SERVERS])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    print(f"{now():%Y-%m-%d}, {os.cpu_count()} cores, {asked.rounds} rounds")
    missed = []
    for kind in asked.databases:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            subjects = {}
            try:
                for size in asked.sizes:
                    url = stack.enter_context(database(kind, folder, size))
                    fill(url, size)
                    subjects[size] = Subject(url, folder, size)
                    stack.callback(partial(subjects[size].cron.close, timeout=1))
            except OperationalError as error:
                print(f"\n{kind} is left out: {error.orig}")
                continue
            if not show(kind, asked.sizes, measure(subjects, asked.rounds)):
                missed.append(kind)
    if missed:
        print(f"\nA tick with one due row grew beyond {GOAL} on {', '.join(missed)}.")
        raise SystemExit(1)
    print(f"\nA tick with one due row costs at most {GOAL} of what it costs among the fewest rows.")


if __name__ == "__main__":
    main()
