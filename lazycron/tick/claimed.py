"""What a claimed row is said to do: run, hang without renewing its lease, or be lost."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lazycron.durations import roughly
from lazycron.model.lateness import is_renewed, renewed_at
from lazycron.store import JobRow, TaskRow
from lazycron.texts import at
from lazycron.tick.reasons import Explanation, Reason

PRICE = "if its process is still at work, the work is done twice"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Judges claims; `budget` is a tick's seconds, beyond which a run is called long."""

    lease_of: Callable[[str], timedelta]
    budget: timedelta

    def is_hanging(self, row: TaskRow | JobRow, now: datetime) -> bool:
        """Tell whether a row is claimed by a run that has ceased to renew its lease."""
        return self.has_stopped(row.name, row.next_run_at if row.lock_token else None, now)

    def has_stopped(self, name: str, lease_until: datetime | None, now: datetime) -> bool:
        """Tell whether a task's claim with this lease has ceased to be renewed; None: no claim."""
        return lease_until is not None and not is_renewed(lease_until, self.lease_of(name), now)

    def about(self, row: TaskRow | JobRow, now: datetime, release: str) -> Explanation:
        """Explain a claimed row; `release` is the command that frees it."""
        began, until = row.last_run_at or now, row.next_run_at
        length = roughly(now - began)
        where = f"since {at(began)} in {row.locked_by}"
        if until <= now:
            text = (
                f"it was running {where}, and its lease ended at {at(until)}; "
                "the next tick records the run as lost and runs it again"
            )
            return Explanation(Reason.LOST, text)
        if self.is_hanging(row, now):
            renewed = renewed_at(until, self.lease_of(row.name))
            text = (
                f"hanging: it has been running for {length}, {where}, and its lease was not "
                f"renewed after {at(renewed)}; a tick runs it again once the lease ends at "
                f"{at(until)}, and `{release} --force` frees it now, but {PRICE}"
            )
            return Explanation(Reason.HANGING, text)
        long = ""
        if now - began > self.budget:
            long = f", longer than a tick's budget of {roughly(self.budget)}"
        text = (
            f"running for {length}{long}, {where}; its lease is renewed until {at(until)}, "
            "and its next run comes after this one"
        )
        return Explanation(Reason.RUNNING, text)
