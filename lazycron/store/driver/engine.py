"""lazycron's own engine: from a URL, or a clone of the app's."""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from sqlalchemy import URL, Engine, PoolProxiedConnection, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, IsolationLevel
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from lazycron.errors import ConfigurationError
from lazycron.schema import UNREADABLE
from lazycron.store.driver.sqlite_path import file_of, host_of, is_in_memory, name_of

TIMESTAMPTZ = 1184
ASYNC_DRIVERS = {"aiosqlite", "asyncpg", "psycopg_async", "aiomysql", "asyncmy"}
DEFAULT_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    # What many hosting platforms still hand out; SQLAlchemy itself refuses it.
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
BUSY_TIMEOUT_MS = 5000
# After how many seconds without use a server's connection is pinged.
REST = 1.0
USED_AT = "lazycron used at"
EXTRAS = {"postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}


def to_url(database: str) -> URL:
    """Read a database URL, with the driver that lazycron tests against where none is named.

    Raises ConfigurationError for what is not a URL, for an async driver (naming the sync form), and
    for SQLite in memory, which no second thread or process can see.
    """
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        message = (
            "database is not a URL that SQLAlchemy can read; pass one such as "
            '"sqlite:///lazycron.db" or "postgresql+psycopg://user@host/name"'
        )
        raise ConfigurationError(message) from None
    family, _, driver = url.drivername.partition("+")
    if driver in ASYNC_DRIVERS:
        sync = url.set(drivername=DEFAULT_DRIVERS.get(family, family))
        message = (
            f"database {shown(url)} names an async driver; lazycron works in threads "
            f"of its own: pass {shown(sync)}"
        )
        raise ConfigurationError(message)
    if family == "sqlite":
        _check_file(url)
    return url.set(drivername=DEFAULT_DRIVERS.get(url.drivername, url.drivername))


def shown(url: URL) -> str:
    """Return a URL without its secrets, for messages: its query may hold passwords, too."""
    return url.set(query={}).render_as_string()


def _check_file(url: URL) -> None:
    """Raise ConfigurationError where an SQLite URL names no file that others can open as well."""
    if is_in_memory(url):
        message = (
            "an SQLite database in memory is seen by one connection only; pass a file, such as "
            '"sqlite:///lazycron.db"'
        )
        raise ConfigurationError(message)
    name = name_of(url)
    if "\x00" in name or not name.strip("/") or host_of(url) not in ("", "localhost"):
        message = f'database {url.database!r} is not a file\'s path; pass one, such as "sqlite:///lazycron.db"'
        raise ConfigurationError(message)


def open_engine(url: URL) -> Engine:
    """Make an engine with a small pool, READ COMMITTED on the servers, WAL on SQLite.

    Raises ConfigurationError where the driver is not installed.
    """
    try:
        return _open(url)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        extra = EXTRAS.get(url.drivername.partition("+")[0])
        install = f"; `pip install 'lazycron[{extra}]'` brings one" if extra else ""
        message = f"there is no driver for {url.drivername} here ({error}){install}"
        raise ConfigurationError(message) from None


def _open(url: URL) -> Engine:
    options: dict[str, Any] = {"pool_size": 3, "max_overflow": 7}
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, **options)
        event.listen(engine, "do_connect", _prepare_file(url))
        event.listen(engine, "connect", _prefer_wal)
        return engine
    engine = create_engine(url, isolation_level=_isolation(url), **options)
    _ping_after_a_rest(engine)
    _make_sessions_read_committed(engine)
    return engine


def _prepare_file(url: URL) -> Callable[..., None]:
    """Create a missing file that only its owner can read, and name a folder that is missing.

    SQLite gives the two files beside it the same mode. This is checked at each connect: a folder
    that is unmounted is an outage, not a wrong setting.
    """
    path = file_of(url).absolute()
    folder = path.parent
    may_be_made = not url.query.get("vfs") and url.query.get("mode", "rwc") == "rwc"

    def connecting(*given: object) -> None:
        del given
        if path.exists():
            return
        if not folder.is_dir():
            message = f"unable to open database file: the folder {folder} does not exist"
            raise sqlite3.OperationalError(message)
        if may_be_made:
            with suppress(OSError):  # SQLite says why it cannot be created
                # SQLite follows a link, even one that leads to no file yet.
                os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    return connecting


def clone_engine(engine: Engine, url: URL | None = None) -> Engine:
    """Copy the app's engine: its way to connect and its pool's kind and size, READ COMMITTED.

    The copy has `url` instead of the app's own, which may name a file by a relative path.

    The copy shares no connection with the app's, so neither an app-wide isolation level nor a
    parent process's pool reaches lazycron. It pings a connection after a rest, whatever the app's
    engine does: a server may restart between two ticks.
    """
    pool = engine.pool.recreate()
    own = Engine(pool, engine.dialect, url or engine.url, hide_parameters=engine.hide_parameters)
    if engine.dialect.name == "sqlite":
        event.listen(own, "connect", _begin_with_the_first_write)
        return own
    _ping_after_a_rest(own)
    _make_sessions_read_committed(own)
    # Set once for each connection, after what the app does there. An execution option would set it
    # at each use, where SQLAlchemy does not translate errors.
    level = _isolation(engine.url)

    @event.listens_for(own, "connect")
    def isolate(connection: DBAPIConnection, record: object) -> None:
        del record
        engine.dialect.set_isolation_level(connection, level)

    return own


def _isolation(url: URL) -> IsolationLevel:
    # Every transaction of ours on PostgreSQL is one statement, so BEGIN and COMMIT are saved.
    return "AUTOCOMMIT" if url.get_backend_name() == "postgresql" else "READ COMMITTED"


def _ping_after_a_rest(engine: Engine) -> None:
    """Ping a connection, unless it was used within the last second.

    SQLAlchemy's own pre-ping asks before each use: one more round trip for each statement of a
    tick, half of a tick's cost where the server is far away.
    """

    def given_back(connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        del connection
        record.info[USED_AT] = time.monotonic()

    def taken_out(
        connection: DBAPIConnection, record: ConnectionPoolEntry, proxy: PoolProxiedConnection
    ) -> None:
        del proxy
        used_at = record.info.get(USED_AT)
        if used_at is None or time.monotonic() - used_at < REST:
            return
        try:
            is_there = engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error:
            is_there = False
        if not is_there:
            # All others were opened before; what is opened now is new.
            raise InvalidatePoolError

    event.listen(engine, "checkin", given_back)
    event.listen(engine, "checkout", taken_out)


def _make_sessions_read_committed(engine: Engine) -> None:
    """Set READ COMMITTED for single statements on PostgreSQL too, against a role's default."""
    if engine.dialect.name == "postgresql":
        event.listen(engine, "connect", _set_read_committed)


def _set_read_committed(connection: DBAPIConnection, record: object) -> None:
    del record
    cursor = connection.cursor()
    cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    # psycopg reads moments in this style only, and a role may have another as its default.
    cursor.execute("SET DateStyle TO ISO")
    cursor.close()
    connection.commit()
    adapters = getattr(connection, "adapters", None)
    if adapters is not None:  # psycopg
        adapters.register_loader("timestamptz", _loader(adapters.get_loader(TIMESTAMPTZ, 0)))


@cache
def _loader(usual: Any) -> Any:  # noqa: ANN401 - psycopg's, which may be missing
    """Return what reads moments that Python has no value for: infinity, or after the year 9999."""

    class Loader:
        format = usual.format

        def __init__(self, oid: int, context: Any = None) -> None:  # noqa: ANN401 - as above
            self._usual = usual(oid, context)

        def load(self, data: Any) -> Any:  # noqa: ANN401 - as above
            try:
                return self._usual.load(data)
            except Exception:  # noqa: BLE001 - one of psycopg's
                return UNREADABLE

    return Loader


def _begin_with_the_first_write(connection: sqlite3.Connection, record: object) -> None:
    """Undo an app's own way of beginning transactions: autocommit, or a BEGIN that it sends itself.

    The events with which apps send BEGIN belong to their engine, not to its pool. So a connection
    left in autocommit mode would write a run without its history.
    """
    del record
    if sys.version_info >= (3, 12):
        connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL
    connection.isolation_level = "DEFERRED"


def _prefer_wal(connection: sqlite3.Connection, record: object) -> None:
    del record
    cursor = connection.cursor()
    try:
        # No wait: the caller may hold the lock, in another connection.
        cursor.execute("PRAGMA busy_timeout = 0")
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError:
        # Another connection is writing right now; the next one to open switches.
        pass
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.close()
