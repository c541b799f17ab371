"""What a tick says it decided about each task, and why."""

from lazycron.model.registry import Registry
from lazycron.model.report import Decision, Decisions
from lazycron.process import Facts
from lazycron.store import Store
from lazycron.tick.tick import Tick
from lazycron.tick.why import Why

UNBOUND = "it is due, but no code of this process has it; it runs where its code is"


class Deciding:
    """Puts a tick's decisions into words."""

    def __init__(self, registry: Registry, store: Store, why: Why, facts: Facts) -> None:
        self._registry = registry
        self._store = store
        self._why = why
        self._facts = facts

    def about_runs(self, tick: Tick) -> Decisions:
        """Return decisions only for the tasks that ran."""
        ran = {run.task: Decision("ran", f"{run.status}: {run.message}") for run in tick.runs}
        return Decisions(ran, self._registry.names)

    def about_all(self, tick: Tick) -> Decisions:
        """Return a decision for every task; in a visitor's tick, for those it touched."""
        decisions = self.about_runs(tick)
        for name in tick.made:
            reason = "its row was made in this tick; it runs in a later one"
            decisions[name] = Decision("deferred", reason)
        if tick.door.trigger in ("traffic", "admin"):
            return decisions
        rows = {row.name: row for row in self._store.known_rows()}
        for task in self._registry:
            if task.name not in decisions:
                row, now = rows.get(task.name), tick.moments.now()
                found = self._why.about(task, row, now, trigger=tick.door.trigger)
                decisions[task.name] = Decision("skipped", str(found))
        if not self._facts.unknown_rows:
            return decisions
        for name in self._store.recurring.due_beside(list(self._registry.names), tick.due):
            decisions[name] = Decision("unbound", UNBOUND)
        return decisions

    def all_skipped(self, tick: Tick, reason: str) -> Decisions:
        """Say why nothing else could run."""
        decisions = self.about_runs(tick)
        for task in self._registry:
            decisions.setdefault(task.name, Decision("skipped", reason))
        return decisions

    def not_installed(self, tick: Tick) -> Decisions:
        """Say that there are no tables."""
        return self.all_skipped(tick, str(self._why.not_installed()))
