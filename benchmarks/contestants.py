"""The contestants of jobs.py: each enqueues jobs that do nothing, and runs them one by one.

A module of a peer is imported when its contestant is made, in a process of its own.
"""

import asyncio
import sqlite3
import uuid
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Protocol

from sqlalchemy import event, make_url

from lazycron import Budget, LazyCron
from lazycron.app import parts_of
from lazycron.store.driver.engine import open_engine

NORMAL, FULL = "NORMAL", "FULL"


class Contestant(Protocol):
    """Enqueues, and runs what was enqueued; its making is not measured."""

    def enqueue(self, number: int) -> None:
        """Enqueue so many jobs, each by a call and a commit of its own."""

    def run(self) -> None:
        """Run all jobs that wait."""

    def history(self) -> int:
        """Count the runs that have left a trace."""


def noop() -> None:
    """Do nothing."""


# lazycron


class Lazycron:
    """lazycron, in one tick without limits as `lazycron run` makes it, or in ticks of three."""

    def __init__(self, url: str, synchronous: str = "", *, tick: int | None = None) -> None:
        engine = open_engine(make_url(url))
        if synchronous:

            @event.listens_for(engine, "connect")
            def set_synchronous(connection: sqlite3.Connection, record: object) -> None:
                del record
                connection.execute(f"PRAGMA synchronous={synchronous}")

        self._tick = tick
        self._cron = LazyCron(engine, create_tables=True)
        self._task = self._cron.task(noop)
        self._cron.sync()

    def enqueue(self, number: int) -> None:
        """Enqueue."""
        for _ in range(number):
            self._task.enqueue()

    def run(self) -> None:
        """Tick until nothing is due."""
        while self._cron.run_due(budget=Budget(self._tick, None)).runs:
            pass

    def history(self) -> int:
        """Count the history's rows."""
        with parts_of(self._cron).store.engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT count(*) FROM task_run").scalar_one()
        return int(found)


# the least that a lease and a history cost

SCHEMA = """
CREATE TABLE raw_job (id {id}, name text, arguments text, due {moment}, token text);
CREATE TABLE raw_run (id {id}, job_id bigint, name text, started_at {moment}, status text);
CREATE INDEX raw_due ON raw_job (due, id);
"""


class RawSqlite:
    """sqlite3 by hand: an INSERT; then a claim, and a commit of delete, history and next claim."""

    def __init__(self, path: str, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={synchronous}")
        self._connection.executescript(
            SCHEMA.format(id="integer PRIMARY KEY AUTOINCREMENT", moment="text")
        )

    def enqueue(self, number: int) -> None:
        """Insert."""
        for _ in range(number):
            self._connection.execute(
                "INSERT INTO raw_job (name, arguments, due) VALUES ('noop', '[]', ?)",
                (datetime.now(UTC).isoformat(),),  # noqa: TID251 - a peer of lazycron's own clock
            )

    def run(self) -> None:
        """Claim, delete, note."""
        claimed = self._claim()
        while claimed is not None:
            now = datetime.now(UTC).isoformat()  # noqa: TID251 - as above
            noop()
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM raw_job WHERE id = ? AND token = ?", claimed)
            self._connection.execute(
                "INSERT INTO raw_run (job_id, name, started_at, status) "
                "VALUES (?, 'noop', ?, 'ok')",
                (claimed[0], now),
            )
            claimed = self._claim()
            self._connection.execute("COMMIT")

    def _claim(self) -> tuple[int, str] | None:
        token, now = uuid.uuid4().hex, datetime.now(UTC)  # noqa: TID251 - as above
        found = self._connection.execute(
            "UPDATE raw_job SET token = ?, due = ? WHERE id = (SELECT id FROM raw_job WHERE "
            "due <= ? AND token IS NULL ORDER BY due, id LIMIT 1) RETURNING id",
            (token, (now + timedelta(minutes=5)).isoformat(), now.isoformat()),
        ).fetchone()
        return None if found is None else (found[0], token)

    def history(self) -> int:
        """Count the history's rows."""
        found = self._connection.execute("SELECT count(*) FROM raw_run").fetchone()
        return int(found[0])


class RawPsycopg:
    """psycopg by hand: an INSERT; then a claim, and a commit of delete, history and next claim."""

    def __init__(self, conninfo: str) -> None:
        psycopg = import_module("psycopg")
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._connection.execute(
            SCHEMA.format(
                id="bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", moment="timestamptz"
            )
        )

    def enqueue(self, number: int) -> None:
        """Insert."""
        for _ in range(number):
            self._connection.execute(
                "INSERT INTO raw_job (name, arguments, due) VALUES ('noop', '[]', now())"
            )

    def run(self) -> None:
        """Claim, delete, note."""
        claimed = self._claim()
        while claimed is not None:
            noop()
            with self._connection.transaction():
                self._connection.execute(
                    "WITH gone AS (DELETE FROM raw_job WHERE id = %s AND token = %s RETURNING id) "
                    "INSERT INTO raw_run (job_id, name, started_at, status) "
                    "SELECT id, 'noop', now(), 'ok' FROM gone",
                    claimed,
                )
                claimed = self._claim()

    def _claim(self) -> tuple[int, str] | None:
        token = uuid.uuid4().hex
        found = self._connection.execute(
            "UPDATE raw_job SET token = %s, due = now() + interval '5 minutes' WHERE id = (SELECT "
            "id FROM raw_job WHERE due <= now() AND token IS NULL ORDER BY due, id LIMIT 1 "
            "FOR UPDATE SKIP LOCKED) RETURNING id",
            (token,),
        ).fetchone()
        return None if found is None else (found[0], token)

    def history(self) -> int:
        """Count the history's rows."""
        found = self._connection.execute("SELECT count(*) FROM raw_run").fetchone()
        return int(found[0])


# the peers


class Huey:
    """SqliteHuey, worked off by dequeue and execute as its consumer's one worker does."""

    def __init__(self, path: str, synchronous: str) -> None:
        huey = import_module("huey")
        storage = import_module("huey.storage").SqliteStorage

        class Storage(storage):  # type: ignore[misc,valid-type]
            """Its file, at the synchronous setting that is asked for."""

            def _create_connection(self) -> Any:  # noqa: ANN401 - sqlite3's
                made = super()._create_connection()
                made.execute(f"PRAGMA synchronous={synchronous}")
                return made

        self._huey = huey.Huey("bench", storage_class=Storage, filename=path)
        self._task = self._huey.task()(noop)
        self._done = 0

    def enqueue(self, number: int) -> None:
        """Enqueue."""
        for _ in range(number):
            self._task()

    def run(self) -> None:
        """Dequeue and execute."""
        while (task := self._huey.dequeue()) is not None:
            self._huey.execute(task)
            self._done += 1

    def history(self) -> int:
        """Count what was executed: it keeps no history, and no result that is None."""
        return self._done


class Procrastinate:
    """Procrastinate with psycopg, its worker at concurrency 1."""

    def __init__(self, conninfo: str) -> None:
        procrastinate = import_module("procrastinate")
        self._worker = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=conninfo)
        )
        self._worker.task(name="noop")(noop)
        connector = procrastinate.SyncPsycopgConnector(conninfo=conninfo, min_size=1, max_size=1)
        self._app = procrastinate.App(connector=connector)
        self._noop = self._app.task(name="noop")(noop)
        self._app.open()
        self._app.schema_manager.apply_schema()

    def enqueue(self, number: int) -> None:
        """Defer."""
        for _ in range(number):
            self._noop.defer()

    def run(self) -> None:
        """Let the worker go until nothing is left."""
        self._worker.run_worker(
            wait=False, concurrency=1, listen_notify=False, install_signal_handlers=False
        )

    def history(self) -> int:
        """Count the jobs that are done."""
        query = "SELECT count(*) AS n FROM procrastinate_jobs WHERE status = 'succeeded'"
        return int(self._app.connector.execute_query_one(query)["n"])


class PgQueuer:
    """PgQueuer with asyncpg, in batches of one or of its own ten.

    With psycopg it runs sixty jobs a second: its statements wait for its listener's turn.
    """

    def __init__(self, conninfo: str, batch: int) -> None:
        self._conninfo = conninfo
        self._batch = batch
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._begin())

    async def _connect(self) -> Any:  # noqa: ANN401 - asyncpg's
        return await import_module("asyncpg").connect(self._conninfo)

    async def _begin(self) -> None:
        queries = import_module("pgqueuer.queries").Queries
        self._queries = queries.from_asyncpg_connection(await self._connect())
        await self._queries.install()

    def enqueue(self, number: int) -> None:
        """Enqueue."""

        async def enqueue() -> None:
            for _ in range(number):
                await self._queries.enqueue("noop", None)

        self._loop.run_until_complete(enqueue())

    def run(self) -> None:
        """Drain."""

        async def run() -> None:
            pgqueuer = import_module("pgqueuer")
            worker = pgqueuer.PgQueuer.from_asyncpg_connection(await self._connect())

            @worker.entrypoint("noop")  # type: ignore[untyped-decorator]
            async def job(job: object) -> None:
                del job

            mode = import_module("pgqueuer.types").QueueExecutionMode.drain
            await worker.qm.run(batch_size=self._batch, mode=mode)

        self._loop.run_until_complete(run())

    def history(self) -> int:
        """Count the log's successes."""

        async def count() -> int:
            rows = await self._queries.driver.fetch(
                "SELECT count(*) AS n FROM pgqueuer_log WHERE status = 'successful'"
            )
            return int(rows[0]["n"])

        return self._loop.run_until_complete(count())


class DjangoTasks:
    """django-tasks with its database backend, on SQLite (NORMAL) or PostgreSQL."""

    def __init__(self, database: dict[str, Any]) -> None:
        backend = "django_tasks_db.DatabaseBackend"
        import_module("django.conf").settings.configure(
            INSTALLED_APPS=["django_tasks", "django_tasks_db"],
            DATABASES={"default": database},
            TASKS={"default": {"BACKEND": backend}},
            USE_TZ=True,
        )
        import_module("django").setup()
        import_module("django.core.management").call_command("migrate", verbosity=0)
        self._task = import_module("django_tasks").task()(noop)
        globals()["noop"] = self._task  # it is looked up by its name
        self._worker = import_module("django_tasks_db.management.commands.db_worker").Worker
        self._results = import_module("django_tasks_db.models").DBTaskResult.objects

    def enqueue(self, number: int) -> None:
        """Enqueue."""
        for _ in range(number):
            self._task.enqueue()

    def run(self) -> None:
        """Let its worker go until nothing is left."""
        self._worker(
            queue_names=["default"],
            interval=0,
            batch=True,
            backend_name="default",
            startup_delay=False,
            max_tasks=None,
            worker_id="bench",
            excluded_queue_names=[],
        ).run()

    def history(self) -> int:
        """Count the results."""
        return int(self._results.filter(status="SUCCESSFUL").count())


def django_on_sqlite(path: str) -> DjangoTasks:
    """Make django-tasks on SQLite, with the settings that its users are told to choose."""
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
    return DjangoTasks(
        {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": pragmas},
        }
    )


def django_on_postgresql(url: str) -> DjangoTasks:
    """Make django-tasks on PostgreSQL, its connection kept open."""
    found = make_url(url)
    return DjangoTasks(
        {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": found.database,
            "USER": found.username or "",
            "PASSWORD": found.password or "",
            "HOST": found.host or "",
            "PORT": found.port or "",
            "CONN_MAX_AGE": None,
        }
    )
