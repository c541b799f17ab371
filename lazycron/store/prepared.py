"""Statements compiled once for each dialect, for the few that every run sends.

SQLAlchemy compiles a statement once too, but binds, wraps and unwraps it anew at each execution;
sent as text through the same connection it takes about two thirds of the time (measured on SQLite:
78 against 126 microseconds for claim, record and history). Events and errors stay SQLAlchemy's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, CursorResult, Delete, Dialect, Insert, Select, Update
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
        self._in_order = whole.positiontup
        self._fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in whole.parameters.items()
            if name not in values
        }
        self._processors: Sequence[tuple[str, Process]] = tuple(
            (name, process) for name, process in processors.items() if name in values
        )
        self._dialect = dialect

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        """Send the statement; the result's rows are as the driver gives them."""
        bound = {**self._fixed, **values}
        for name, process in self._processors:
            bound[name] = process(bound[name])
        if self._in_order is None:
            return connection.exec_driver_sql(self._text, bound)
        return connection.exec_driver_sql(self._text, tuple(bound[n] for n in self._in_order))

    @cached_property
    def _results(self) -> Sequence[tuple[str, Process | None]]:
        # Not before a row is read: asking a statement without RETURNING for its columns makes its
        # copies believe for ever that they have none.
        return _result_processors(self.statement, self._dialect)

    def read_one(self, result: CursorResult[Any]) -> SimpleNamespace | None:
        """Read the one row there may be, its values as the columns' types have them."""
        row = result.one_or_none()
        if row is None:
            return None
        named = zip(self._results, row, strict=True)
        return SimpleNamespace(
            **{name: process(value) if process else value for (name, process), value in named}
        )


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
    return prepare(connection, statement, values).execute(connection, values).rowcount


def one(
    connection: Connection, statement: Statement, values: Mapping[str, Any]
) -> SimpleNamespace | None:
    """Send a statement and return the one row there may be."""
    prepared = prepare(connection, statement, values)
    return prepared.read_one(prepared.execute(connection, values))
