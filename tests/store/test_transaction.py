"""Statements sent by the driver's own cursor, with SQLAlchemy's errors, events and log."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import Engine, bindparam, create_engine, event, insert, make_url, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, StatementError

from lazycron.schema import lazycron_setting, metadata
from lazycron.store import Fault, fault_of
from lazycron.store.driver import private
from lazycron.store.driver.engine import open_engine
from lazycron.store.driver.prepared import Prepared
from lazycron.store.driver.transaction import BareTransaction, Kept, Transactions, Values
from tests.conftest import START

PUT = insert(lazycron_setting).values(
    name=bindparam("p_name"),
    value=bindparam("p_value"),
    changed_at=bindparam("p_at", type_=lazycron_setting.c.changed_at.type),
)
READ = select(lazycron_setting).where(lazycron_setting.c.name == bindparam("p_name"))


def put(name: str, value: str = "") -> dict[str, object]:
    """Return the parameters of PUT."""
    return {"p_name": name, "p_value": value, "p_at": START}


@pytest.fixture(params=["past SQLAlchemy", "the public way"])
def begin(
    request: pytest.FixtureRequest, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Transactions]:
    """Transactions on every database, in a place that is emptied before.

    Once with SQLAlchemy's private names, and once as where one of them is missing.
    """
    if request.param == "the public way":
        monkeypatch.setattr(private, "ARE_THERE", False)
    with engine.begin() as connection:
        connection.execute(lazycron_setting.delete())
    made = Transactions(engine)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Engine]:
    """SQLite as lazycron itself opens it."""
    made = open_engine(make_url(f"sqlite:///{tmp_path}/own.db"))
    metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def bare(file: Engine) -> Iterator[Transactions]:
    """Transactions past SQLAlchemy."""
    made = Transactions(file)
    yield made
    made.close()


def names(engine: Engine) -> list[str]:
    """Return what was committed."""
    with engine.connect() as connection:
        return sorted(connection.execute(select(lazycron_setting.c.name)).scalars())


def checked_out(engine: Engine) -> int:
    """Count the connections that the pool misses."""
    return int(engine.pool.checkedout())  # type: ignore[attr-defined]


def test_what_a_block_has_sent_is_committed_at_its_end(begin: Transactions, engine: Engine) -> None:
    """Rows are counted, and come back as their columns' types have them."""
    with begin() as begun:
        assert begun.count(begin.prepare(PUT), put("a", "1")) == 1
        row = begun.one(begin.prepare(READ), {"p_name": "a"})
        assert begun.one(begin.prepare(READ), {"p_name": "b"}) is None
    assert row is not None
    assert (row.name, row.value, row.changed_at) == ("a", "1", START)
    assert names(engine) == ["a"]


def test_after_an_error_nothing_of_the_block_stands(begin: Transactions, engine: Engine) -> None:
    """But what was committed in its midst; on PostgreSQL each statement is a transaction."""
    alone = ["gone"] if engine.dialect.name == "postgresql" else []

    def fail() -> None:
        with begin() as begun:
            begun.count(begin.prepare(PUT), put("kept"))
            begun.commit()
            begun.count(begin.prepare(PUT), put("gone"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(engine) == [*alone, "kept"]
    with begin() as begun:
        begun.count(begin.prepare(PUT), put("next"))
    assert names(engine) == [*alone, "kept", "next"]


def test_a_drivers_error_is_sqlalchemys(begin: Transactions, engine: Engine) -> None:
    """A key that is taken twice; its values are not in the message."""
    with begin() as begun:
        begun.count(begin.prepare(PUT), put("a"))
    with pytest.raises(IntegrityError) as caught, begin() as begun:
        begun.count(begin.prepare(PUT), put("a", "hush"))
    assert "hush" not in str(caught.value)
    assert names(engine) == ["a"]


def test_whoever_listens_hears_every_statement(begin: Transactions, engine: Engine) -> None:
    """On SQLite, too: they go the whole way for as long as somebody does."""
    heard: list[str] = []

    def hear(*given: object) -> None:
        heard.append(str(given[2]))

    event.listen(engine, "before_cursor_execute", hear)
    with begin() as begun:
        begun.count(begin.prepare(PUT), put("a"))
    event.remove(engine, "before_cursor_execute", hear)
    assert [statement.split()[:3] for statement in heard] == [
        ["INSERT", "INTO", "lazycron_setting"]
    ]


def test_sqlalchemys_log_has_every_statement(
    bare: Transactions, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks for what lazycron sends finds it where he would look."""
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"), bare() as begun:
        begun.count(bare.prepare(PUT), put("a"))
    assert "INSERT INTO lazycron_setting" in caplog.text


@pytest.mark.parametrize("number", range(len(private.NEEDED)))
def test_without_one_of_sqlalchemys_private_names_statements_go_the_public_way(
    file: Engine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Another version may have given it another name."""
    needed = list(private.NEEDED)
    kind, name = needed[number]
    needed[number] = (kind, f"{name}_as_it_was")
    assert private.are_there()
    monkeypatch.setattr(private, "NEEDED", tuple(needed))
    monkeypatch.setattr(private, "ARE_THERE", private.are_there())
    assert not isinstance(Transactions(file)(), BareTransaction)


# past SQLAlchemy


def test_sqlite_goes_past_sqlalchemy(bare: Transactions) -> None:
    """As long as nobody listens."""
    assert isinstance(bare(), BareTransaction)


def test_one_connection_is_kept_and_given_back_at_the_end(bare: Transactions, file: Engine) -> None:
    """However many transactions there were."""
    for number in range(3):
        with bare() as begun:
            begun.count(bare.prepare(PUT), put(str(number)))
        assert checked_out(file) == 1
    bare.close()
    assert checked_out(file) == 0
    assert names(file) == ["0", "1", "2"]


@pytest.mark.parametrize("size", [1, 2])
def test_of_an_apps_pool_of_one_none_is_kept(file: Engine, size: int) -> None:
    """Somebody else may want it."""
    engine = create_engine(file.url, pool_size=size)
    begin = Transactions(engine)
    with begin() as begun:
        begun.count(begin.prepare(PUT), put("a"))
    assert checked_out(engine) == size - 1
    begin.close()
    engine.dispose()


@pytest.mark.parametrize("name", ["checkout", "checkin", "reset"])
def test_of_a_pool_that_an_app_listens_to_none_is_kept(file: Engine, name: str) -> None:
    """It may set something on each connection that is taken out."""
    engine = create_engine(file.url)
    event.listen(engine, name, lambda *_: None)
    begin = Transactions(engine)
    with begin() as begun:
        begun.count(begin.prepare(PUT), put("a"))
    assert checked_out(engine) == 0
    engine.dispose()


def test_a_second_thread_goes_by_the_pool(bare: Transactions, file: Engine) -> None:
    """Of the two connections one is kept."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with bare() as begun:
            begun.one(bare.prepare(READ), {"p_name": "a"})
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    with bare() as begun:
        begun.count(bare.prepare(PUT), put("a"))
        assert checked_out(file) == 2
    go_on.set()
    thread.join()
    assert checked_out(file) == 1


def test_a_connection_in_use_at_the_end_is_not_kept(bare: Transactions, file: Engine) -> None:
    """The file may be another one by then."""
    with bare() as begun:
        begun.count(bare.prepare(PUT), put("a"))
        bare.close()
    assert checked_out(file) == 0


def test_after_an_error_the_connection_goes_through_the_pool(
    bare: Transactions, file: Engine
) -> None:
    """Which rolls back."""
    with bare():
        pass

    def fail() -> None:
        with bare() as begun:
            begun.count(bare.prepare(PUT), put("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert checked_out(file) == 0
    assert names(file) == []


@pytest.mark.parametrize("reset", [None, "commit", "rollback"])
def test_after_an_error_it_is_rolled_back_whatever_the_pool_does(
    file: Engine, reset: Literal["commit", "rollback"] | None
) -> None:
    """An app's pool may do nothing to what is given back, or commit it."""
    engine = create_engine(file.url, pool_reset_on_return=reset, connect_args={"timeout": 0})
    begin = Transactions(engine)

    def fail() -> None:
        with begin() as begun:
            begun.count(begin.prepare(PUT), put("a"))
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()
        with file.begin() as other:
            other.execute(lazycron_setting.delete())
        assert names(file) == []
    begin.close()
    engine.dispose()


def test_an_interrupted_statement_holds_no_lock_while_its_traceback_lives(file: Engine) -> None:
    begin = Transactions(file)
    returning = PUT.returning(lazycron_setting.c.name)

    class Halted(BareTransaction):
        def _send(self, statement: Prepared, values: Values) -> None:
            super()._send(statement, values)
            raise KeyboardInterrupt  # between the statement and the reading of its row

    with file.connect() as other:
        other.exec_driver_sql("PRAGMA busy_timeout = 0")
        halted = Halted(file, Kept(1))
        with pytest.raises(KeyboardInterrupt) as caught, halted as begun:
            begun.one(begin.prepare(returning), put("a"))
        assert caught.tb is not None  # which holds the cursor
        other.exec_driver_sql("BEGIN IMMEDIATE")
        other.rollback()
        with begin() as again:
            assert again.one(begin.prepare(returning), put("b")) is not None
        assert "b" in names(file)
    begin.close()


@pytest.mark.parametrize("name", ["handle_error", "do_execute"])
def test_a_dialects_listeners_are_heard_too(file: Engine, name: str) -> None:
    """An app's engine may have any."""
    engine = create_engine(file.url)
    event.listen(engine, name, lambda *_: None)
    assert not isinstance(Transactions(engine)(), BareTransaction)
    engine.dispose()


def test_a_held_lock_is_busy(bare: Transactions, file: Engine) -> None:
    """At once, where the connection does not wait."""
    with bare() as begun:
        begun.one(bare.prepare(READ), {"p_name": "a"})
        begun._cursor.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
    with file.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError) as caught, bare() as begun:
            begun.count(bare.prepare(PUT), put("a"))
    assert fault_of(caught.value) is Fault.BUSY


def test_a_missing_table_is_missing(bare: Transactions, file: Engine) -> None:
    """As anywhere."""
    metadata.drop_all(file)
    with pytest.raises(OperationalError) as caught, bare() as begun:
        begun.one(bare.prepare(READ), {"p_name": "a"})
    assert fault_of(caught.value) is Fault.MISSING


def test_a_connection_that_somebody_has_closed_is_replaced(
    bare: Transactions, file: Engine
) -> None:
    """It is gone, and the next transaction has a new one."""
    with bare() as begun:
        begun.count(bare.prepare(PUT), put("a"))
        kept = begun._pooled.dbapi_connection  # type: ignore[attr-defined]
    kept.close()
    with pytest.raises(DBAPIError) as caught, bare() as begun:
        begun.count(bare.prepare(PUT), put("b"))
    assert fault_of(caught.value) is Fault.GONE
    with bare() as begun:
        begun.count(bare.prepare(PUT), put("c"))
    assert names(file) == ["a", "c"]


def test_what_a_driver_cannot_encode_is_sqlalchemys_error_too(bare: Transactions) -> None:
    """The recorder stores it in plainer words."""
    with pytest.raises(StatementError, match="surrogates not allowed"), bare() as begun:
        begun.count(bare.prepare(PUT), put("a", "\udc80"))


def test_a_file_that_cannot_be_opened_is_sqlalchemys_error(tmp_path: Path) -> None:
    """A folder that is gone is an outage."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    engine = open_engine(make_url(f"sqlite:///{folder}/own.db"))
    folder.rmdir()
    with pytest.raises(OperationalError, match="does not exist") as caught:
        Transactions(engine)().__enter__()
    assert isinstance(caught.value.orig, sqlite3.OperationalError)


def test_the_watched_way_sees_what_the_bare_one_wrote(bare: Transactions, file: Engine) -> None:
    """They may take turns."""
    with bare() as begun:
        begun.count(bare.prepare(PUT), put("a"))
    with file.begin() as connection:
        connection.execute(text("UPDATE lazycron_setting SET value = 'b'"))
    with bare() as begun:
        row = begun.one(bare.prepare(READ), {"p_name": "a"})
    assert row is not None
    assert row.value == "b"
