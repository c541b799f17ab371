"""Statements of one's own, as a rule each a transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Delete, Engine, Executable, Insert, Update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from lazycron.store.driver.prepared import AnyRow


class Database:
    """Sends single statements by an engine's pool."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def dialect(self) -> str:
        """What SQLAlchemy calls this kind of database."""
        return self.engine.dialect.name

    @contextmanager
    def several(self) -> Iterator[Connection]:
        """Begin a transaction of several statements, which is committed at the end of a block."""
        if self.dialect != "postgresql":
            with self.engine.begin() as connection:
                yield connection
            return
        # These connections are in autocommit mode. An execution option would leave them with the
        # isolation level of the app's engine when the pool takes them back.
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            except BaseException:
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def write(self, statement: Update | Delete | Insert, values: Mapping[str, Any]) -> int:
        """Send a statement and commit; return how many rows it found."""
        with self.engine.begin() as connection:
            return connection.execute(statement, values).rowcount

    def add(self, statement: Insert, values: Mapping[str, Any]) -> bool:
        """Insert a row and commit; False where its key is taken."""
        try:
            self.write(statement, values)
        except IntegrityError:
            return False
        return True

    def rows(
        self, statement: Executable, values: Mapping[str, Any] | None = None
    ) -> Sequence[AnyRow]:
        """Read rows."""
        with self.engine.connect() as connection:
            return connection.execute(statement, values).all()

    def row(self, statement: Executable, values: Mapping[str, Any]) -> AnyRow | None:
        """Read the first row; None where there is none."""
        with self.engine.connect() as connection:
            return connection.execute(statement, values).first()
