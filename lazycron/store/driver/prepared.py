"""The few statements that every run sends, compiled once for a dialect.

SQLAlchemy compiles a statement once too, but binds, wraps and unwraps it at each execution.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from sqlalchemy import Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

Statement = Select[Any] | Update | Delete | Insert
Process = Callable[[Any], Any]
Prepare = Callable[[Statement], "Prepared"]
# A row's columns, by position and as attributes of their names.
AnyRow = Any


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement's text, and how its values go in.

    `fixed` are the statement's own values, `varying` the parameters whose values are processed.
    `in_order` puts all values in order where the driver does not take them by name.
    """

    text: str
    fixed: Mapping[str, Any]
    varying: Sequence[tuple[str, Process]]
    in_order: Callable[[Mapping[str, Any]], Any] | None


class Prepared:
    """One statement for one dialect, compiled at its first use; its maker keeps it."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        self._statement = statement
        self._dialect = dialect

    @property
    def text(self) -> str:
        """The statement as the driver takes it."""
        return self._compiled.text

    def bind(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a tuple, or a mapping
        """Return the parameters as the driver takes them."""
        compiled = self._compiled
        bound = {**compiled.fixed, **values}
        for name, process in compiled.varying:
            bound[name] = process(bound[name])
        return bound if compiled.in_order is None else compiled.in_order(bound)

    def read(self, row: Sequence[Any]) -> AnyRow:
        """Return the driver's row with its values converted to the columns' types."""
        make, processors = self._results
        found = list(row)
        for position, process in processors:
            found[position] = process(found[position])
        return make(found)

    @cached_property
    def _compiled(self) -> _Compiled:
        compiled = self._statement.compile(dialect=self._dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - for the type checker
        # The others are the statement's own, such as the names in an IN list.
        varying = {name for name, bind in compiled.binds.items() if bind.required}
        whole = compiled.construct_expanded_state(dict.fromkeys(varying))
        processors = {name: one for name, one in whole.processors.items() if callable(one)}
        for name, bind in compiled.binds.items():
            process = bind.type.dialect_impl(self._dialect).bind_processor(self._dialect)
            if process is not None:
                processors[name] = process
        fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in whole.parameters.items()
            if name not in varying
        }
        processed = tuple((name, one) for name, one in processors.items() if name in varying)
        return _Compiled(whole.statement, fixed, processed, _in_order(whole.positiontup))

    @cached_property
    def _results(self) -> tuple[Callable[[Sequence[Any]], AnyRow], Sequence[tuple[int, Process]]]:
        # Not before a row is read: once a statement without RETURNING was asked for its columns,
        # its copies have none for ever.
        if isinstance(self._statement, Select):
            columns = list(self._statement.selected_columns)
        else:
            columns = list(self._statement.exported_columns)
        processors = []
        for position, column in enumerate(columns):
            process = column.type.dialect_impl(self._dialect).result_processor(self._dialect, None)
            if process is not None:
                processors.append((position, process))
        made = namedtuple("Row", [column.key or "" for column in columns])  # type: ignore[misc]  # noqa: PYI024
        return made._make, processors


def _in_order(names: Sequence[str] | None) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return what puts values in order; None if this driver takes them by name."""
    if names is None or len(names) > 1:
        return itemgetter(*names) if names else None
    return lambda values: tuple(values[name] for name in names)
