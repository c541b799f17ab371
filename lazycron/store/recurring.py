"""Recurring rows outside of a run: made, seen, changed by code or by hand, and forgotten."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from lazycron.store import rows
from lazycron.store.rows import TaskRow


class Recurring(ABC):
    """The part of the store that keeps recurring rows; each method is a transaction."""

    engine: Engine

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the known tasks."""

    def shorten_lease(self, row: TaskRow, until: datetime) -> bool:
        """End a claim's lease earlier, if nobody has renewed it since it was seen."""
        with self.engine.begin() as connection:
            return rows.shorten_lease(connection, row, until)

    def due_rows(self, names: Sequence[str], due: datetime) -> list[TaskRow]:
        """Read these tasks' recurring rows that are due and free."""
        with self.engine.connect() as connection:
            return rows.read_due(connection, names, due)

    def pass_over(
        self,
        row: TaskRow,
        *,
        next_run_at: datetime,
        scheduled_for: datetime,
        message: str,
        counters: Mapping[str, int],
    ) -> bool:
        """Note that a due time was missed; False if the row has changed since it was seen."""
        with self.engine.begin() as connection:
            return rows.pass_over(
                connection,
                row,
                next_run_at=next_run_at,
                scheduled_for=scheduled_for,
                message=message,
                counters=counters,
            )

    def make_row(
        self,
        name: str,
        schedule: str,
        *,
        enabled: bool,
        next_run_at: datetime,
        scheduled_for: datetime,
        now: datetime,
    ) -> bool:
        """Insert a task's recurring row; False where it is there already."""
        try:
            with self.engine.begin() as connection:
                rows.make(
                    connection,
                    name=name,
                    schedule=schedule,
                    enabled=enabled,
                    next_run_at=next_run_at,
                    scheduled_for=scheduled_for,
                    now=now,
                )
        except IntegrityError:
            return False
        return True

    def rows(self) -> list[TaskRow]:
        """Read every recurring row, known or not, by name."""
        with self.engine.connect() as connection:
            return rows.read_all(connection)

    def row(self, name: str) -> TaskRow | None:
        """Read one task's recurring row."""
        with self.engine.connect() as connection:
            return rows.read(connection, name)

    def override(
        self, row: TaskRow, schedule: str | None, *, next_run_at: datetime, scheduled_for: datetime
    ) -> bool:
        """Set or clear the operator's schedule; False if the row has changed since it was seen."""
        with self.engine.begin() as connection:
            return rows.override(
                connection, row, schedule, next_run_at=next_run_at, scheduled_for=scheduled_for
            )

    def bring_in(
        self,
        row: TaskRow,
        schedule: str,
        override: str | None,
        *,
        next_run_at: datetime,
        scheduled_for: datetime,
    ) -> bool:
        """Store a schedule changed in code, and what becomes of the operator's.

        False if the row has changed since it was seen.
        """
        with self.engine.begin() as connection:
            return rows.bring_in(
                connection,
                row,
                schedule,
                override,
                next_run_at=next_run_at,
                scheduled_for=scheduled_for,
            )

    def move(self, row: TaskRow, next_run_at: datetime) -> bool:
        """Move a free row's due time; False if the row has changed since it was seen."""
        with self.engine.begin() as connection:
            return rows.move(connection, row, next_run_at)

    def put_off(self, row: TaskRow, next_run_at: datetime) -> bool:
        """Let a free row wait for longer with the same due time; False if it has changed."""
        with self.engine.begin() as connection:
            return rows.put_off(connection, row, next_run_at)

    def enable(self, name: str, *, enabled: bool) -> bool:
        """Switch a task on or off; False if it has no row."""
        with self.engine.begin() as connection:
            return rows.enable(connection, name, enabled=enabled)

    def forget(self, name: str) -> bool:
        """Delete a task's recurring row unless it is claimed."""
        with self.engine.begin() as connection:
            return rows.forget(connection, name)

    def see(self, now: datetime, before: datetime) -> None:
        """Stamp `seen_at` of known rows that were last stamped before a moment."""
        with self.engine.begin() as connection:
            rows.see(connection, self.names, now, before)

    def forget_unseen(self, before: datetime) -> int:
        """Delete free recurring rows that no code has known since a moment."""
        with self.engine.begin() as connection:
            return rows.forget_unseen(connection, self.names, before)

    def any_unknown(self) -> bool:
        """Tell whether enabled rows exist whose task this process does not know."""
        with self.engine.connect() as connection:
            return rows.any_unknown(connection, self.names)
