"""Statements compiled once for each dialect, for the few that every run sends.

SQLAlchemy compiles a statement once too, but binds, wraps and unwraps it anew at each execution.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from sqlalchemy import Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

Statement = Select[Any] | Update | Delete | Insert
Process = Callable[[Any], Any]
# A dozen for each set of known names; whoever registers tasks all the time has many sets.
MOST_KEPT = 500
# A row's columns, by position and as attributes of their names.
AnyRow = Any


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
        self.text = whole.statement
        self._in_order = _in_order(whole.positiontup)
        self._fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in whole.parameters.items()
            if name not in values
        }
        self._processors: Sequence[tuple[str, Process]] = tuple(
            (name, process) for name, process in processors.items() if name in values
        )
        self._dialect = dialect

    def bind(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a tuple, or a mapping
        """Return the parameters as the driver takes them."""
        bound = {**self._fixed, **values}
        for name, process in self._processors:
            bound[name] = process(bound[name])
        return bound if self._in_order is None else self._in_order(bound)

    def read(self, row: Sequence[Any]) -> AnyRow:
        """Return a row that the driver gave as the columns' types have it."""
        make, processors = self._results
        found = list(row)
        for position, process in processors:
            found[position] = process(found[position])
        return make(found)

    @cached_property
    def _results(self) -> tuple[Callable[[Sequence[Any]], AnyRow], Sequence[tuple[int, Process]]]:
        # Not before a row is read: asking a statement without RETURNING for its columns makes its
        # copies believe for ever that they have none.
        if isinstance(self.statement, Select):
            columns = list(self.statement.selected_columns)
        else:
            columns = list(self.statement.exported_columns)
        processors = []
        for position, column in enumerate(columns):
            process = column.type.dialect_impl(self._dialect).result_processor(self._dialect, None)
            if process is not None:
                processors.append((position, process))
        made = namedtuple("Row", [column.key or "" for column in columns])  # type: ignore[misc]  # noqa: PYI024
        return made._make, processors


def _in_order(names: Sequence[str] | None) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return what puts values in order; None: this driver takes them by name."""
    if names is None or len(names) > 1:
        return itemgetter(*names) if names else None
    return lambda values: tuple(values[name] for name in names)


class Prepare:
    """The statements of one dialect that were prepared so far, and those that are asked for."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: dict[int, Prepared] = {}

    def __call__(self, statement: Statement, values: Mapping[str, Any]) -> Prepared:
        """Return a statement as it is sent; `values` says which of its parameters vary."""
        found = self._known.get(id(statement))
        if found is None:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            found = self._known[id(statement)] = Prepared(statement, self._dialect, values)
        return found
