"""Statements compiled once for each dialect, for the few that every run sends.

SQLAlchemy compiles a statement once too, but binds, wraps and unwraps it anew at each execution.
Sent by the driver's own cursor, on the same connection and in the same transaction, claim, record
and history take a third of the time on SQLite. Errors stay SQLAlchemy's, and so do events: where
anybody listens, statements go the whole way.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

Statement = Select[Any] | Update | Delete | Insert
Process = Callable[[Any], Any]


class Prepared:
    """One statement's text for one dialect, and how its values go in and out."""

    def __init__(self, statement: Statement, dialect: Dialect, values: Mapping[str, Any]) -> None:
        self.statement = statement  # held, so that its id is not given to another one
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - for the type checker
        # The values only say which parameters vary: the names in an IN are the statement's own.
        whole = compiled.construct_expanded_state(dict(values))
        processors = {name: one for name, one in whole.processors.items() if callable(one)}
        for name, bind in compiled.binds.items():
            process = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if process is not None:
                processors[name] = process
        self._text = whole.statement
        # Two names at least, so that what is got is a tuple; no statement here has fewer.
        self._in_order = itemgetter(*whole.positiontup) if whole.positiontup else None
        self._fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in whole.parameters.items()
            if name not in values
        }
        self._processors: Sequence[tuple[str, Process]] = tuple(
            (name, process) for name, process in processors.items() if name in values
        )
        self._dialect = dialect

    def count(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Send the statement and return how many rows it found."""
        return self._send(connection, values)[0]

    def one(self, connection: Connection, values: Mapping[str, Any]) -> SimpleNamespace | None:
        """Send the statement and return the one row there may be, as the columns' types have it."""
        rows = self._send(connection, values, reads=True)[1]
        if not rows:
            return None
        [row] = rows
        named = zip(self._results, row, strict=True)
        return SimpleNamespace(
            **{name: process(value) if process else value for (name, process), value in named}
        )

    def _send(
        self, connection: Connection, values: Mapping[str, Any], *, reads: bool = False
    ) -> tuple[int, Sequence[Any]]:
        """Return how many rows were found, and which, as the driver gives them."""
        bound = {**self._fixed, **values}
        for name, process in self._processors:
            bound[name] = process(bound[name])
        given = bound if self._in_order is None else self._in_order(bound)
        if _is_watched(connection):
            result = connection.exec_driver_sql(self._text, given)
            return result.rowcount, result.all() if reads else ()
        if not connection.in_transaction():
            connection.begin()
        cursor = None
        try:
            cursor = connection.connection.cursor()
            cursor.execute(self._text, given)
            found = cursor.rowcount, cursor.fetchall() if reads else ()
            cursor.close()
        except BaseException as error:  # noqa: BLE001 - as SQLAlchemy does; it raises in any case
            connection._handle_dbapi_exception(error, self._text, None, cursor, None)  # noqa: SLF001
        return found

    @cached_property
    def _results(self) -> Sequence[tuple[str, Process | None]]:
        # Not before a row is read: asking a statement without RETURNING for its columns makes its
        # copies believe for ever that they have none.
        return _result_processors(self.statement, self._dialect)


def _is_watched(connection: Connection) -> bool:
    """Tell whether anybody listens to what is executed, as SQLAlchemy itself asks it."""
    return bool(connection._has_events or connection.engine._has_events)  # noqa: SLF001


def _result_processors(
    statement: Statement, dialect: Dialect
) -> Sequence[tuple[str, Process | None]]:
    if isinstance(statement, Select):
        columns = list(statement.selected_columns)
    else:
        columns = list(statement.exported_columns)
    return tuple(
        (column.key or "", column.type.dialect_impl(dialect).result_processor(dialect, None))
        for column in columns
    )


_PREPARED: "WeakKeyDictionary[Dialect, dict[int, Prepared]]" = WeakKeyDictionary()


def prepare(connection: Connection, statement: Statement, values: Mapping[str, Any]) -> Prepared:
    """Return a statement as it is sent on this connection."""
    known = _PREPARED.get(connection.dialect)
    if known is None:
        known = _PREPARED.setdefault(connection.dialect, {})
    found = known.get(id(statement))
    if found is None:
        found = known[id(statement)] = Prepared(statement, connection.dialect, values)
    return found


def count(connection: Connection, statement: Statement, values: Mapping[str, Any]) -> int:
    """Send a statement and return how many rows it found."""
    return prepare(connection, statement, values).count(connection, values)


def one(
    connection: Connection, statement: Statement, values: Mapping[str, Any]
) -> SimpleNamespace | None:
    """Send a statement and return the one row there may be."""
    return prepare(connection, statement, values).one(connection, values)
