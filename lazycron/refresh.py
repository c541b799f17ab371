"""The last line of a tick: tell the state file when anything is next due."""

from datetime import datetime, timedelta

from lazycron.facts import Facts
from lazycron.moments import Moments
from lazycron.statefile import SETTINGS_LIFE, State, StateFile
from lazycron.store import Store

UNKNOWN_LIFE = timedelta(minutes=1)
SWITCHES = ("traffic", "admin")
LOOP_AT = "loop_at"
OFF = "off"
ON = "on"


class Refresh:
    """Asks the database for the next due instant and the switches, and writes the state file."""

    def __init__(self, store: Store, statefile: StateFile, facts: Facts) -> None:
        self._store = store
        self._statefile = statefile
        self._facts = facts

    def refresh(self, moments: Moments, *, settings: bool = False) -> State:
        """Write the file anew; `settings` reads the switches although they are fresh."""
        return self.look(moments, settings=settings)[0]

    def look(self, moments: Moments, *, settings: bool = False) -> tuple[State, datetime | None]:
        """Do what `refresh` does; return also what is next due by the reference.

        The state itself is in the host's own time.
        """
        following: datetime | None = None

        def ask(old: State | None) -> State:
            nonlocal following
            following = self._ask(moments)
            return self._state(old, following, moments, settings=settings)

        return self._statefile.refresh(ask), following

    def _ask(self, moments: Moments) -> datetime | None:
        reference = moments.reference
        asked_at = moments.now()
        before = reference.monotonic()
        following, server_now = self._store.next_due(self._facts.floor_at(before))
        monotonic = reference.monotonic()
        if server_now is not None and moments.given is None:
            reference.sample(server_now, before, monotonic)
        if self._facts.unknown_rows:
            # All rows before the first known one are unknown, which spares the next look the way
            # past them; a row that comes in from now on is due from now on. And another process
            # that shares the file may know these rows.
            self._facts.raise_floor(min(following or asked_at, asked_at), monotonic)
            later = moments.now() + UNKNOWN_LIFE
            following = min(following or later, later)
        return following

    def _state(
        self, old: State | None, following: datetime | None, moments: Moments, *, settings: bool
    ) -> State:
        reference = moments.reference
        now = moments.now()
        if moments.given is None:
            # The file is this host's: it speaks in the host's own wall-clock time.
            now = reference.to_host(now)
            following = following and reference.to_host(following)
        if old and not settings and abs(now - old.settings_at) < SETTINGS_LIFE:
            return State(
                next=following,
                traffic=old.traffic,
                admin=old.admin,
                loop_at=old.loop_at,
                settings_at=old.settings_at,
                written_at=now,
            )
        found = self._store.settings()
        loop_at = found.get(LOOP_AT)
        return State(
            next=following,
            traffic=found.get("traffic", ON) == ON,
            admin=found.get("admin", ON) == ON,
            loop_at=datetime.fromisoformat(loop_at) if loop_at else None,
            settings_at=now,
            written_at=now,
        )
