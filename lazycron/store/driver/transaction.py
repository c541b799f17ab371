"""One transaction of prepared statements, sent by the driver's own cursor.

On SQLite this way a claim, its record and its history in one transaction take a third of the time.
Errors, events and the log stay SQLAlchemy's: where an app listens, statements go through all of
SQLAlchemy.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from sqlalchemy import Connection, Engine, Pool, PoolProxiedConnection, QueuePool
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError, StatementError

from lazycron.store.driver.prepared import AnyRow, Prepared, Statement
from lazycron.store.driver.private import may_send_past, raise_translated

Values = Mapping[str, Any]
WithCursor = tuple[PoolProxiedConnection, DBAPICursor]


class Kept:
    """The connection that is kept, if there is one: a second thread uses the pool."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.connections: deque[WithCursor] = deque()


class Transaction(Protocol):
    """Sends statements."""

    def count(self, statement: Prepared, values: Values) -> int:
        """Send a statement and return how many rows it found."""

    def one(self, statement: Prepared, values: Values) -> AnyRow | None:
        """Send a statement and return its one row, if any, with the columns' types."""

    def all(self, statement: Prepared, values: Values) -> list[AnyRow]:
        """Send a statement and return its rows."""

    def commit(self) -> None:
        """Commit; the next statement begins a new transaction."""


class Transactions:
    """Begins one engine's transactions: `with transactions() as begun` commits, or rolls back.

    On SQLite one connection is kept between two of them, if the pool has more than one and the app
    does not listen to check-outs and check-ins.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._most_kept = 1 if _can_spare_one(engine.pool) else 0
        self._kept = Kept(self._most_kept)

    def prepare(self, statement: Statement) -> Prepared:
        """Return a statement as these transactions send it."""
        return Prepared(statement, self._engine.dialect)

    def __call__(self) -> AbstractContextManager[Transaction]:
        """Return a transaction, to be entered once."""
        return self._bare() or self._pooled(commits=True)

    def reading(self) -> AbstractContextManager[Transaction]:
        """Return a transaction that only reads, to be entered once: there is nothing to commit."""
        return self._bare() or self._pooled(commits=False)

    def _bare(self) -> "BareTransaction | None":
        if not self._is_sqlite or not may_send_past(self._engine):
            return None
        return BareTransaction(self._engine, self._kept)

    @contextmanager
    def _pooled(self, *, commits: bool) -> Iterator[Transaction]:
        # Not `begin()`: inside it a transaction cannot be committed and a new one begun.
        with self._engine.connect() as connection:
            yield self.on(connection)
            if commits:
                connection.commit()

    def on(self, connection: Connection) -> Transaction:
        """Return a transaction on a connection of this engine, which the caller ends."""
        return OnConnection(connection)

    def close(self) -> None:
        """Give back the connection that is kept; one in use is given back after its use."""
        kept, self._kept = self._kept, Kept(self._most_kept)
        kept.most = 0
        while kept.connections:
            pooled, cursor = kept.connections.pop()
            cursor.close()
            pooled.close()


def _can_spare_one(pool: Pool) -> bool:
    heard = pool.dispatch
    is_heard = bool(heard.checkout or heard.checkin or heard.reset)
    return isinstance(pool, QueuePool) and pool.size() > 1 and not is_heard


class OnConnection:
    """A transaction on SQLAlchemy's Connection, which knows when a server has gone away."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sends_past = may_send_past(connection.engine, connection)

    def count(self, statement: Prepared, values: Values) -> int:
        """Send a statement and return how many rows it found."""
        return self._send(statement, values)[0]

    def one(self, statement: Prepared, values: Values) -> AnyRow | None:
        """Send a statement and return its one row, if any, with the columns' types."""
        found = self.all(statement, values)
        return found[0] if found else None

    def all(self, statement: Prepared, values: Values) -> list[AnyRow]:
        """Send a statement and return its rows."""
        return [statement.read(row) for row in self._send(statement, values, reads=True)[1]]

    def commit(self) -> None:
        """Commit; the next statement begins a new transaction."""
        self._connection.commit()

    def _send(
        self, statement: Prepared, values: Values, *, reads: bool = False
    ) -> tuple[int, Sequence[Any]]:
        """Return how many rows were found, and the rows as the driver gives them."""
        given = statement.bind(values)
        connection = self._connection
        if not self._sends_past:
            try:
                result = connection.exec_driver_sql(statement.text, given)
            except StatementError as error:
                error.hide_parameters = True
                raise
            return result.rowcount, result.all() if reads else ()
        if not connection.in_transaction():
            connection.begin()
        cursor = None
        try:
            cursor = connection.connection.cursor()
            cursor.execute(statement.text, given)
            found = cursor.rowcount, cursor.fetchall() if reads else ()
            cursor.close()
        except BaseException as error:  # noqa: BLE001 - as SQLAlchemy does; it raises in any case
            raise_translated(connection, error, statement.text, cursor)
        return found


class BareTransaction:
    """A transaction on SQLite without SQLAlchemy and, as a rule, without its pool.

    Of a run's time, making, beginning and closing a Connection would take a fifth, and the pool's
    check-out and check-in a tenth.
    """

    def __init__(self, engine: Engine, kept: Kept) -> None:
        self._engine = engine
        self._dialect = engine.dialect
        self._kept = kept

    def __enter__(self) -> Self:
        """Take the connection that is kept, with its cursor, or one out of the pool."""
        try:
            self._pooled, self._cursor = self._kept.connections.pop()
        except IndexError:
            self._pooled = self._taken_out()
            self._cursor = self._pooled.cursor()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an error, and let the connection go."""
        is_clean = False
        try:
            if kind is None:
                self.commit()
                is_clean = True
        finally:
            if is_clean and len(self._kept.connections) < self._kept.most:
                self._kept.connections.append((self._pooled, self._cursor))
            else:
                self._let_go(rolls_back=not is_clean)

    def _let_go(self, *, rolls_back: bool) -> None:
        """Give the connection back, rolled back where asked: an app's pool may not do that.

        The cursor is closed first: a statement that was not read to its end holds the write lock
        as long as anything, even a traceback, refers to the cursor.
        """
        try:
            if self._pooled.is_valid:
                self._cursor.close()
            if rolls_back and self._pooled.is_valid:
                self._pooled.rollback()
        except self._dialect.loaded_dbapi.Error as error:
            self._pooled.invalidate(error)
        finally:
            self._pooled.close()

    def _taken_out(self) -> PoolProxiedConnection:
        try:
            return self._engine.raw_connection()
        except self._dialect.loaded_dbapi.Error as error:
            errors = self._dialect.loaded_dbapi.Error
            raise DBAPIError.instance(None, None, error, errors, dialect=self._dialect) from error

    def count(self, statement: Prepared, values: Values) -> int:
        """Send a statement and return how many rows it found."""
        self._send(statement, values)
        return int(self._cursor.rowcount)

    def one(self, statement: Prepared, values: Values) -> AnyRow | None:
        """Send a statement and return its one row, if any, with the columns' types."""
        # It reads all rows: a statement with RETURNING is done only when it was read to its end.
        found = self.all(statement, values)
        return found[0] if found else None

    def all(self, statement: Prepared, values: Values) -> list[AnyRow]:
        """Send a statement and return its rows."""
        self._send(statement, values)
        try:
            rows = self._cursor.fetchall()
        except Exception as error:
            raise self._translated(error, statement.text) from error
        return [statement.read(row) for row in rows]

    def commit(self) -> None:
        """Commit; the next statement begins a new transaction."""
        try:
            self._pooled.commit()
        except Exception as error:
            raise self._translated(error, None) from error

    def _send(self, statement: Prepared, values: Values) -> None:
        given = statement.bind(values)
        try:
            self._cursor.execute(statement.text, given)
        except Exception as error:
            raise self._translated(error, statement.text) from error

    def _translated(self, error: Exception, text: str | None) -> BaseException:
        """Return SQLAlchemy's error for a driver's, without the values.

        A file's connection is never gone, unless other code has closed it.
        """
        errors = self._dialect.loaded_dbapi.Error
        is_gone = isinstance(error, errors) and self._dialect.is_disconnect(error, None, None)
        if is_gone:
            self._pooled.invalidate(error)
        return DBAPIError.instance(
            text, None, error, errors, dialect=self._dialect, connection_invalidated=is_gone
        )
