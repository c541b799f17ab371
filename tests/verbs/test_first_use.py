"""The first use ever stands inside the caller's own open transaction: there are no tables yet."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from lazycron import BusyError, LazyCron, NotInstalledError
from lazycron.migrate import is_current, migrate, revision_at
from lazycron.schema import missing_tables
from lazycron.testing import drain
from tests.conftest import MakeCron
from tests.tables import asynchronous

ORDER = text("INSERT INTO shop_order (id) VALUES (1)")
MakeApp = Callable[[URL], Engine]


@pytest.fixture
def fresh(tmp_path: Path) -> URL:
    """An SQLite file with the app's own table and nothing of lazycron's."""
    url = make_url(f"sqlite:///{tmp_path / 'shop.db'}")
    _make_shop(url)
    return url


@pytest.fixture
def empty_server(request: pytest.FixtureRequest) -> Iterator[URL]:
    """A server's database with the app's own table and nothing of lazycron's."""
    url: URL = request.getfixturevalue(request.param)
    engine = create_engine(url)
    migrate(engine, "base")
    _make_shop(url)
    try:
        yield url
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE shop_order"))
        migrate(engine)
        engine.dispose()


def _make_shop(url: URL) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shop_order (id INTEGER PRIMARY KEY)"))
    engine.dispose()


def orders(engine: Engine) -> int:
    """Count the app's orders."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM shop_order")).scalar_one())


def impatient(url: URL) -> Engine:
    """Return an engine that waits for no lock: whoever waits for itself fails at once."""
    return create_engine(url, connect_args={"timeout": 0})


def by_connection(engine: Engine, act: Callable[[object], None], *, commits: bool) -> None:
    """Write an order by a Connection, and act with that."""
    with engine.connect() as connection:
        connection.execute(ORDER)
        act(connection)
        (connection.commit if commits else connection.rollback)()


def by_session(engine: Engine, act: Callable[[object], None], *, commits: bool) -> None:
    """Do the same by a Session."""
    with Session(engine) as session:
        session.execute(ORDER)
        act(session)
        (session.commit if commits else session.rollback)()


def by_scoped_session(engine: Engine, act: Callable[[object], None], *, commits: bool) -> None:
    """Do the same as Flask-SQLAlchemy does: with one session for each request."""
    session = scoped_session(sessionmaker(engine))
    session.execute(ORDER)
    act(session)
    (session.commit if commits else session.rollback)()
    session.remove()


@pytest.mark.parametrize("own", ["its own", "the app's"])
@pytest.mark.parametrize("way", [by_connection, by_session, by_scoped_session])
def test_an_order_and_its_first_job_are_one_transaction_on_a_fresh_file(
    fresh: URL, make_cron: MakeCron, way: Callable[..., None], own: str
) -> None:
    """After a rollback all is gone, tables too, which this process notices."""
    app = impatient(fresh)
    cron = make_cron(fresh if own == "its own" else app)
    done: list[int] = []
    cron.task(name="mail")(done.append)

    def act(connection: object) -> None:
        cron.using("mail", connection=connection).enqueue(1)
        with cron.once("key", connection=connection) as first:
            assert first

    way(app, act, commits=False)
    assert orders(app) == 0
    assert len(missing_tables(app)) > 0
    way(app, act, commits=True)
    assert orders(app) == 1
    assert is_current(app)
    assert [job.args for job in cron.jobs()] == [(1,)]
    drain(cron)
    assert done == [1]
    assert not cron.once("key").__enter__()
    app.dispose()


@pytest.mark.parametrize("commits", [True, False])
def test_coroutines_have_it_too(fresh: URL, make_cron: MakeCron, *, commits: bool) -> None:
    """Two requests at once: the second one's connection waits, and neither blocks the loop."""
    cron = make_cron(fresh)
    cron.task(name="mail")(print)
    engine = create_async_engine(asynchronous(fresh))

    async def request(number: int) -> None:
        async with AsyncSession(engine) as session:
            await session.execute(text(f"INSERT INTO shop_order (id) VALUES ({number})"))
            await cron.using("mail", connection=session).aenqueue(number)
            async with cron.aonce(f"key {number}", connection=session) as first:
                assert first
            await (session.commit() if commits else session.rollback())

    async def main() -> None:
        await asyncio.gather(request(1), request(2))
        await engine.dispose()

    asyncio.run(main())
    assert sorted(job.args for job in cron.jobs()) == ([(1,), (2,)] if commits else [])


def test_what_a_transaction_has_made_is_what_migrations_make(
    fresh: URL, make_cron: MakeCron
) -> None:
    """Alembic sees no difference, and goes on from there."""
    cron = make_cron(fresh)
    cron.task(name="mail")(print)
    app = create_engine(fresh)
    with app.begin() as connection:
        cron.using("mail", connection=connection).enqueue()
    assert len(cron.jobs()) == 1
    app.dispose()  # a connection that is open says what it last knew
    with app.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    revision = revision_at(app)
    made = _shape(app)
    migrate(app, "base")
    migrate(app)
    assert (made, revision) == (_shape(app), revision_at(app))
    app.dispose()


def _shape(engine: Engine) -> set[tuple[str, ...]]:
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT m.name, c.name, c.type, c.\"notnull\", coalesce(c.dflt_value, ''), c.pk"
                " FROM sqlite_master m, pragma_table_xinfo(m.name) c"
                " UNION SELECT name, tbl_name, '', '', '', '' FROM sqlite_master"
            )
        )
        return {tuple(map(str, row)) for row in rows}


def test_where_tables_are_not_to_be_made_they_are_not(fresh: URL, make_cron: MakeCron) -> None:
    """It is said at once; those that the transaction itself has made will do."""
    app = impatient(fresh)
    cron = make_cron(fresh, create_tables=False)
    cron.task(name="mail")(print)
    with app.connect() as connection:
        connection.execute(ORDER)
        with pytest.raises(NotInstalledError):
            cron.using("mail", connection=connection).enqueue()
    app.dispose()


def test_without_connection_the_file_is_busy_and_what_to_do_is_said(
    fresh: URL, make_cron: MakeCron
) -> None:
    """No raw "database is locked", on a file that is new as on any other."""
    app = impatient(fresh)
    cron: LazyCron = make_cron(app)
    cron.task(name="mail")(print)
    with app.begin() as connection:
        connection.execute(ORDER)
        with pytest.raises(BusyError, match=r"connection=.*on_commit="):
            cron.enqueue("mail")
        with pytest.raises(BusyError, match="connection="):
            cron.once("key").__enter__()
    cron.enqueue("mail")
    app.dispose()


@pytest.mark.parametrize("empty_server", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("commits", [True, False])
def test_servers_make_tables_beside_the_callers_transaction(
    empty_server: URL, make_cron: MakeCron, *, commits: bool
) -> None:
    """On MariaDB they would commit it."""
    cron = make_cron(empty_server, create_tables=True)
    cron.task(name="mail")(print)
    app = create_engine(empty_server)
    commits_seen: list[Connection] = []
    event.listen(app, "commit", commits_seen.append)

    def act(connection: object) -> None:
        cron.using("mail", connection=connection).enqueue(1)

    by_connection(app, act, commits=commits)
    assert orders(app) == len(cron.jobs()) == len(commits_seen) == int(commits)
    app.dispose()


@pytest.mark.parametrize("begins", [True, False])
def test_a_savepoint_as_first_statement_needs_an_engine_that_begins(
    sqlite: URL, make_cron: MakeCron, *, begins: bool
) -> None:
    """The driver begins no transaction before it: its release commits, as docs/jobs.md says."""
    cron = make_cron(sqlite)
    cron.task(name="mail")(print)
    app = create_engine(sqlite)
    if begins:
        event.listen(app, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        event.listen(app, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with app.connect() as connection:
        with connection.begin_nested():
            cron.using("mail", connection=connection).enqueue()
        connection.rollback()
    assert len(cron.jobs()) == (0 if begins else 1)
    app.dispose()
