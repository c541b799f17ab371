"""Migrations: one shape on every database, made once however many processes start."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError

from lazycron import migrate as module
from lazycron.errors import BusyError
from lazycron.migrate import HEAD, folder, is_current, migrate, revision_of
from lazycron.schema import (
    lazycron_setting,
    lazycron_version,
    metadata,
    missing_tables,
    once_key,
    scheduled_task,
)
from lazycron.store.driver.engine import open_engine
from lazycron.testing import drain
from tests.conftest import START, MakeCron

OURS = {
    "lazycron_action",
    "lazycron_setting",
    "lazycron_version",
    "once_key",
    "scheduled_task",
    "task_run",
}


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:
    """A database without any table."""
    if request.param == "sqlite":
        yield make_url(f"sqlite:///{tmp_path}/bare.db")
        return
    served: URL = request.getfixturevalue(request.param)
    name = f"{served.database}_bare"
    admin = create_engine(served, isolation_level="AUTOCOMMIT")
    force = " WITH (FORCE)" if request.param == "postgresql" else ""
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}{force}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield served.set(database=name)
        connection.execute(text(f"DROP DATABASE {name}{force}"))
    admin.dispose()


@pytest.fixture
def engine(bare: URL) -> Iterator[Engine]:
    """An engine on it, as lazycron itself would open it."""
    made = open_engine(bare)
    yield made
    made.dispose()


def differences(engine: Engine, expected: MetaData | list[MetaData], **options: Any) -> list[Any]:
    """Return what Alembic's autogenerate would change."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        # A list of them, for an app with several; Alembic's own types know one.
        found: list[Any] = compare_metadata(context, expected)  # type: ignore[arg-type]
        return found


def tables(engine: Engine) -> set[str]:
    """Return the names of all tables."""
    return set(inspect(engine).get_table_names())


def test_the_last_revision_is_the_one_that_this_version_wants() -> None:
    """And there is one line of revisions."""
    config = Config()
    config.set_main_option("script_location", str(folder()))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_migrating_makes_every_table_as_the_code_has_it(engine: Engine) -> None:
    """Alembic finds no difference between head and metadata."""
    assert not is_current(engine)
    migrate(engine)
    assert is_current(engine)
    assert tables(engine) == OURS
    assert differences(engine, metadata, version_table=lazycron_version.name) == []


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    """Rows stay."""
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(
            insert(lazycron_setting).values(name="kept", value="1", changed_at=START)
        )
    migrate(engine)
    with engine.connect() as connection:
        assert connection.execute(select(lazycron_setting.c.name)).scalars().all() == ["kept"]


@pytest.mark.parametrize("gone", [["task_run"], ["once_key", "scheduled_task"]])
def test_tables_that_were_dropped_are_made_anew(engine: Engine, gone: list[str]) -> None:
    """The version table still says that they are there; the others keep their rows."""
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(
            insert(lazycron_setting).values(name="kept", value="1", changed_at=START)
        )
        for name in gone:
            connection.execute(text(f"DROP TABLE {name}"))
    assert missing_tables(engine) == gone
    assert not is_current(engine)
    migrate(engine)
    assert is_current(engine)
    assert differences(engine, metadata, version_table=lazycron_version.name) == []
    with engine.connect() as connection:
        assert connection.execute(select(lazycron_setting.c.name)).scalars().all() == ["kept"]


def test_our_own_migration_is_quiet_in_the_apps_log(bare: URL) -> None:
    """What an app's own Alembic says is heard as before; a process of its own imports it anew."""
    program = """
        import logging, sys
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
        from sqlalchemy import make_url
        from lazycron.migrate import migrate
        from lazycron.schema import metadata
        from lazycron.store.driver.engine import open_engine

        engine = open_engine(make_url(sys.argv[1]))
        migrate(engine)
        migrate(engine, "base")
        metadata.create_all(engine)
        migrate(engine)
        logging.getLogger("alembic.runtime.migration").info("heard")
        """
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(program),
            bare.render_as_string(hide_password=False),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "alembic.runtime.migration heard\n"


def test_the_way_down_and_up_again_is_open(engine: Engine) -> None:
    """Twice; nothing but the version table remains."""
    for _ in range(2):
        migrate(engine)
        migrate(engine, "base")
        assert not is_current(engine)
        assert tables(engine) == {"lazycron_version"}
    migrate(engine, HEAD)
    assert is_current(engine)


def test_two_databases_of_one_process_are_migrated_one_after_the_other(tmp_path: Path) -> None:
    """Alembic's context is the process's, and both may be used first at the same moment."""
    engines = [open_engine(make_url(f"sqlite:///{tmp_path}/{number}.db")) for number in range(4)]
    barrier = threading.Barrier(4)
    errors: list[Exception] = []

    def run(engine: Engine) -> None:
        barrier.wait()
        try:
            migrate(engine)
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [is_current(engine) for engine in engines] == [True] * 4
    for engine in engines:
        engine.dispose()


def test_a_later_versions_tables_are_left_alone(engine: Engine, make_cron: MakeCron) -> None:
    """Whoever rolls a deployment back goes on with what the newer code has made."""
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(update(lazycron_version).values(version_num="9999"))
        connection.execute(text("DROP TABLE once_key"))
    assert not is_current(engine)
    cron = make_cron(engine.url, create_tables=True)
    ran = []
    cron.task(every="hour", name="chore")(lambda: ran.append(1))
    assert cron.run_now("chore") is not None
    assert ran == [1]
    assert is_current(engine)
    with engine.connect() as connection:
        assert revision_of(connection) == "9999"


def test_tables_of_a_version_under_development_work_as_they_are(
    engine: Engine, make_cron: MakeCron
) -> None:
    """Their index of the keys has all rows, runs have one by age, and once keys none."""
    migrate(engine)
    with engine.begin() as connection:
        for index in (*scheduled_task.indexes, *once_key.indexes):
            if index.name in ("uq_scheduled_task_name_key", "ix_once_key_refused_task"):
                index.drop(connection)
        key = connection.dialect.identifier_preparer.quote("key")
        for made in (
            f"UNIQUE INDEX uq_old ON scheduled_task (name, {key})",
            "INDEX ix_task_run_started_at ON task_run (started_at)",
        ):
            connection.execute(text(f"CREATE {made}"))
    cron = make_cron(engine.url, create_tables=False)
    ran = []

    @cron.task(every="hour")
    def work(number: int = 0) -> None:
        ran.append(number)

    cron.sync()
    assert work.using(key="k").enqueue(1).created
    assert not work.using(key="k").enqueue(2).created
    assert work.enqueue(3).created
    drain(cron)
    assert ran == [1, 3]
    assert cron.prune() == 0
    assert [run.status for run in cron.history("work")] == ["ok", "ok"]
    assert cron.check() == []


def test_the_way_down_from_nothing_is_no_error(engine: Engine) -> None:
    """There is nothing to drop."""
    migrate(engine, "base")
    assert tables(engine) <= {"lazycron_version"}


def test_lazycron_counts_its_revisions_in_a_table_of_its_own(engine: Engine) -> None:
    """The app's Alembic keeps its own, whatever it says."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('f00d')"))
    migrate(engine)
    migrate(engine, "base")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).all() == [
            ("f00d",)
        ]


def test_of_ten_processes_that_start_at_once_one_migrates_and_none_fails(
    bare: URL, engine: Engine
) -> None:
    """As under a server with ten workers."""
    program = """
        import os, sys
        from alembic import command  # so that all are as fast as they can be
        from sqlalchemy import make_url
        from lazycron.migrate import is_current, migrate
        from lazycron.store.driver.engine import open_engine

        go_read, go_write = os.pipe()
        children = []
        for number in range(10):
            child = os.fork()
            if child == 0:
                os.close(go_write)
                os.read(go_read, 1)  # until everybody is there
                try:
                    engine = open_engine(make_url(sys.argv[1]))
                    if not is_current(engine):
                        migrate(engine)
                    os._exit(0 if is_current(engine) else 1)
                except BaseException as error:
                    sys.stdout.write(f"{error}\\n")
                    sys.stdout.flush()
                    os._exit(2)
            children.append(child)
        os.close(go_read)
        os.close(go_write)
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
        """
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(program),
            bare.render_as_string(hide_password=False),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"{[0] * 10}\n"
    assert tables(engine) == OURS
    with engine.connect() as connection:
        rows = select(func.count()).select_from(lazycron_version)
        assert connection.execute(rows).scalar_one() == 1


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ", "SERIALIZABLE"])
def test_an_engine_of_any_isolation_level_will_do(bare: URL, level: str) -> None:
    """An app's own may have been handed in; it keeps its level."""
    if bare.get_backend_name() == "sqlite" and level == "REPEATABLE READ":
        level = "READ UNCOMMITTED"
    engine = create_engine(bare, isolation_level=level)
    migrate(engine)
    assert is_current(engine)
    migrate(engine, "base")
    assert not is_current(engine)
    migrate(engine)
    with engine.connect() as connection:
        # What a server says in a session that commits by itself is not what was set.
        if level != "AUTOCOMMIT":
            assert connection.get_isolation_level() == level
    engine.dispose()


# with an app's own Alembic


def app_metadata() -> MetaData:
    """Return the metadata of an app that has one table."""
    own = MetaData()
    Table("guest", own, Column("id", Integer, primary_key=True))
    return own


def test_an_app_that_takes_our_metadata_in_sees_no_difference_after_our_migration(
    engine: Engine,
) -> None:
    """Nothing of ours is dropped, nothing made twice, our version table included."""
    own = app_metadata()
    own.create_all(engine)
    migrate(engine)
    assert differences(engine, [own, metadata]) == []


def test_tables_that_an_apps_own_alembic_has_made_are_taken_as_they_are(engine: Engine) -> None:
    """Migrating only says which revision they have, and rows stay."""
    own = app_metadata()
    own.create_all(engine)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            insert(lazycron_setting).values(name="kept", value="1", changed_at=START)
        )
    assert not is_current(engine)
    migrate(engine)
    assert is_current(engine)
    assert differences(engine, [own, metadata]) == []
    with engine.connect() as connection:
        assert connection.execute(select(lazycron_setting.c.name)).scalars().all() == ["kept"]


def test_a_strangers_table_of_one_of_our_names_is_an_error_not_ours(engine: Engine) -> None:
    """It is left as it is, and nothing is held or half-made once it is out of the way."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE task_run (id INTEGER)"))
    for _ in range(2):
        with pytest.raises(DBAPIError, match=r"task_run.* already exists"):
            migrate(engine)
        assert not is_current(engine)
    assert [column["name"] for column in inspect(engine).get_columns("task_run")] == ["id"]
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE task_run"))
    migrate(engine)
    assert differences(engine, metadata, version_table=lazycron_version.name) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_migration_that_was_killed_half_way_is_finished_by_the_next(
    engine: Engine, number: int
) -> None:
    """MariaDB commits each statement: a table without its index, and no version."""
    lazycron_version.create(engine)
    with engine.begin() as connection:
        scheduled_task.create(connection)
        index = sorted(scheduled_task.indexes, key=lambda one: str(one.name))[number]
        index.drop(connection)
    migrate(engine)
    assert is_current(engine)
    assert differences(engine, metadata, version_table=lazycron_version.name) == []


def test_a_version_table_without_a_row_says_that_nothing_has_been_migrated(engine: Engine) -> None:
    """None, as without the table."""
    with engine.connect() as connection:
        assert revision_of(connection) is None
    lazycron_version.create(engine)
    with engine.connect() as connection:
        assert revision_of(connection) is None


@pytest.mark.parametrize("default", ["MyISAM", "Aria"])
@pytest.mark.parametrize("make", [migrate, metadata.create_all], ids=["migrate", "create_all"])
@pytest.mark.parametrize("bare", ["mariadb"], indirect=True)
def test_on_mariadb_every_table_knows_transactions(
    engine: Engine, default: str, make: Callable[[Engine], None]
) -> None:
    """Whatever a session makes by default."""

    @event.listens_for(engine, "connect")
    def prefer(connection: Any, record: object) -> None:  # noqa: ANN401 - the driver's own
        del record
        connection.cursor().execute(f"SET SESSION default_storage_engine = {default}")

    make(engine)
    found = text(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()"
    )
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE plain (id INTEGER)"))
        engines = {row[0]: row[1] for row in connection.execute(found)}
    assert engines == dict.fromkeys(OURS, "InnoDB") | {"plain": default}


def test_who_waits_for_a_minute_on_mariadb_is_told(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the lock and does not end."""
    engine = open_engine(request.getfixturevalue("mariadb"))
    monkeypatch.setattr(module, "PATIENCE", 0)
    assert engine.url.database is not None
    with engine.connect() as holder:
        module._hold_named_lock(holder)
        with pytest.raises(BusyError, match=f"has been migrating {engine.url.database} for"):
            migrate(engine)
    engine.dispose()
    migrate(engine)
    assert is_current(engine)
    engine.dispose()
