"""What all hosts share beside the tasks: settings, and who did what when."""

from datetime import datetime

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from lazycron.store import claims, settings
from lazycron.store.settings import Action

INSTALLATION = "installation"


class Shared:
    """The part of the store that keeps settings and actions; each method is a transaction."""

    engine: Engine

    def settings(self) -> dict[str, str]:
        """Read the settings that all hosts share."""
        with self.engine.connect() as connection:
            return settings.read(connection)

    def put_setting(self, name: str, value: str, now: datetime) -> None:
        """Store a setting, whether it is there or not."""
        # The UPDATE comes first: a transaction on SQLite must begin with a write.
        with self.engine.begin() as connection:
            if settings.change(connection, name, value, now):
                return
        if not self._add_setting(name, value, now):
            with self.engine.begin() as connection:
                settings.change(connection, name, value, now)

    def installation_id(self, now: datetime) -> str:
        """Return this installation's id, making it where there is none; one racer wins."""
        with self.engine.connect() as connection:
            found = settings.read_one(connection, INSTALLATION)
        if found is not None:
            return found
        self._add_setting(INSTALLATION, claims.new_token(), now)
        with self.engine.connect() as connection:
            return settings.read_one(connection, INSTALLATION) or ""

    def _add_setting(self, name: str, value: str, now: datetime) -> bool:
        try:
            with self.engine.begin() as connection:
                settings.add(connection, name, value, now)
        except IntegrityError:
            return False
        return True

    def last_switched(self, name: str) -> Action | None:
        """Read who enabled or disabled a task last, if that was noted."""
        with self.engine.connect() as connection:
            return settings.last_switched(connection, name)

    def act(self, *, who: str, verb: str, name: str | None, detail: str, at: datetime) -> None:
        """Note who did what when."""
        with self.engine.begin() as connection:
            settings.act(connection, who=who, verb=verb, name=name, detail=detail, at=at)
