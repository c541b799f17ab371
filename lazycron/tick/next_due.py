"""The last step of a tick: tell the state file when anything is next due."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from lazycron.clock import Moments
from lazycron.process import Facts
from lazycron.statefile import SETTINGS_LIFE, State, StateFile
from lazycron.store import INSTALLATION, Store

UNKNOWN_LIFE = timedelta(minutes=1)
SWITCHES = ("traffic", "admin")
# The triggers that use the state file; the cron URL and the command line tick whenever asked.
READERS = ("traffic", "admin", "loop")
LOOP_AT = "loop_at"
OFF = "off"
ON = "on"


class Refresh:
    """Asks the database for the next due instant and the switches, and writes the state file."""

    def __init__(
        self,
        store: Store,
        statefile: StateFile,
        facts: Facts,
        barred_from: Callable[[str], frozenset[str]],
    ) -> None:
        self._store = store
        self._barred_from = barred_from
        self._statefile = statefile
        self._facts = facts
        # The installation's id in the database when the state file was told.
        self._installation_id: str | None = None

    def know_installation(self, now: datetime) -> None:
        """Tell the state file its installation: at the first look, and after a change."""
        if self._installation_id is None:
            self._installation_id = self._store.shared.installation_id(now)
            self._statefile.belong_to(self._store.installation(self._installation_id))

    def begin_anew(self) -> None:
        """Ask again which installation this is: the database's file was replaced."""
        self._installation_id = None

    def refresh(self, moments: Moments, *, settings: bool = False) -> State:
        """Write the file again; `settings` reads the switches even if they are fresh."""
        return self.look(moments, settings=settings)[0]

    def look(
        self, moments: Moments, trigger: str = "traffic", *, settings: bool = False
    ) -> tuple[State, datetime | None]:
        """Do what `refresh` does; also return when this trigger has something to do next.

        That moment is the reference's; the state itself is in the host's own time.
        """
        self.know_installation(moments.now())
        following: dict[str, datetime | None] = {}

        def ask(old: State | None) -> State:
            following.update(self._ask(moments, trigger))
            return self._state(old, following, moments, settings=settings)

        return self._statefile.refresh(ask), following[trigger]

    def unwritten(self, moments: Moments) -> State:
        """Return what the file would say, without writing it: `why` must change nothing."""
        return self._state(None, self._ask(moments, "traffic"), moments, settings=True)

    def _ask(self, moments: Moments, trigger: str) -> dict[str, datetime | None]:
        """Ask when anything is due next, by trigger: one query where no task is barred."""
        reference = moments.reference
        asked_at = moments.now()
        before = reference.monotonic()
        following, server_now = self._store.next_due(self._facts.floor_at(before))
        monotonic = reference.monotonic()
        if server_now is not None and moments.given is None:
            reference.sample(server_now, before, monotonic)
        if self._facts.unknown_rows:
            # All rows before the first known one are unknown, so the next look can skip them; a row
            # that is added from now on is due from now on. Another process that shares the file may
            # know these rows.
            self._facts.raise_floor(min(following or asked_at, asked_at), monotonic)
        found = {frozenset[str](): following}
        barred = {one: self._barred_from(one) for one in (*READERS, trigger)}
        for names in barred.values():
            if names in found:
                continue
            floor = self._facts.floor_at(monotonic, names)
            found[names] = first = self._store.next_due(floor, names)[0]
            if following is not None and following < min(first or asked_at, asked_at):
                # Due rows that this trigger may not run stand in front: any number of them.
                self._facts.raise_floor(min(first or asked_at, asked_at), monotonic, names)
        if self._facts.unknown_rows:
            later = moments.now() + UNKNOWN_LIFE
            found = {names: min(due or later, later) for names, due in found.items()}
        return {one: found[names] for one, names in barred.items()}

    def _state(
        self,
        old: State | None,
        found: Mapping[str, datetime | None],
        moments: Moments,
        *,
        settings: bool,
    ) -> State:
        reference = moments.reference
        now = moments.now()
        if moments.given is None:
            # The file belongs to this host: its times are the host's own wall-clock times.
            now = reference.to_host(now)
            found = {one: due and reference.to_host(due) for one, due in found.items()}
        following = found["traffic"]
        instead = {one: found[one] for one in READERS if found[one] != following}
        if old and not settings and abs(now - old.settings_at) < SETTINGS_LIFE:
            return State(
                next=following,
                instead=instead,
                traffic=old.traffic,
                admin=old.admin,
                loop_at=old.loop_at,
                settings_at=old.settings_at,
                written_at=now,
                installation=self._statefile.installation,
            )
        switches = self._store.shared.settings()
        if switches.get(INSTALLATION) != self._installation_id:
            self._installation_id = None  # the tables were made again
        loop_at = switches.get(LOOP_AT)
        return State(
            next=following,
            instead=instead,
            traffic=switches.get("traffic", ON) == ON,
            admin=switches.get("admin", ON) == ON,
            loop_at=datetime.fromisoformat(loop_at) if loop_at else None,
            settings_at=now,
            written_at=now,
            installation=self._statefile.installation,
        )
