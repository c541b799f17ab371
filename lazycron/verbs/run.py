"""The verbs that run tasks: all that is due, or one by its name."""

from lazycron.clock import to_moment
from lazycron.errors import ConfigurationError
from lazycron.executors.bridge import Bridge
from lazycron.model.report import Budget, RunResult, TickReport, to_trigger
from lazycron.texts import shown
from lazycron.tick.tick import Door
from lazycron.verbs.base import Moment, Name, to_name
from lazycron.wiring import Parts


def run_due(
    parts: Parts, trigger: str, budget: Budget | None, now: Moment, bridge: Bridge
) -> TickReport:
    """Run due tasks within the budget, in this thread, and report."""
    return parts.runner.run_due(_door(parts, trigger, budget, now, bridge))


def run_now(
    parts: Parts, name: Name, trigger: str, now: Moment, bridge: Bridge
) -> RunResult | None:
    """Run one task now, due or not; None where it is running already."""
    return parts.runner.run_now(to_name(name), _door(parts, trigger, None, now, bridge))


def _door(parts: Parts, trigger: str, budget: Budget | None, now: Moment, bridge: Bridge) -> Door:
    budget = parts.settings.budget if budget is None else budget
    if not isinstance(budget, Budget):
        message = f"budget={shown(budget)}: pass a Budget(…) or None"
        raise ConfigurationError(message)
    return Door(
        trigger=to_trigger(trigger),
        budget=budget,
        now=None if now is None else to_moment(now),
        bridge=bridge,
    )
