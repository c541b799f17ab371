"""Store what a run came to, whatever the database is doing, and leave a line in the log file."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from lazycron.logfile import LogFile
from lazycron.model.settle import Claim, Outcome, Policy, settle
from lazycron.store import (
    Changed,
    DatabaseError,
    Fault,
    Lost,
    Recorded,
    Stamp,
    Store,
    fault_of,
)
from lazycron.texts import MESSAGE_LENGTH

logger = logging.getLogger("lazycron")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Recorder:
    """Settles and records runs."""

    def __init__(
        self,
        store: Store,
        policy_of: Callable[[Claim], Policy],
        logfile: LogFile,
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._logfile = logfile
        self._monotonic = monotonic

    def record(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        earliest: datetime,
        give_up_at: float,
        then: Stamp | None,
    ) -> Recorded | None:
        """Store a run's outcome, and claim the next row with `then` in the same commit.

        A database that fails is asked again until `give_up_at`; an outcome that it refuses is
        stored in plain ASCII, then without its texts. Returns None for a run whose row is no longer
        ours, and for one that could not be stored: it is in the log file in any case.
        """
        recorded = self._record(claim, outcome, earliest, give_up_at, then)
        self._log(claim, outcome, recorded=recorded is not None)
        return recorded

    def begin(self, claim: Claim) -> None:
        """Let the log file have what it waits with, before a run that may end the process."""
        self._logfile.before_run_of(claim.name)

    def flush(self) -> None:
        """Let the log file have all lines."""
        self._logfile.flush()

    def _record(
        self,
        claim: Claim,
        outcome: Outcome,
        earliest: datetime,
        give_up_at: float,
        then: Stamp | None,
    ) -> Recorded | None:
        finished_at = claim.started_at + timedelta(milliseconds=outcome.ms or 0)
        pause, waited = FIRST_PAUSE, 0.0
        length = give_up_at - self._monotonic()
        plainer = [_without_texts, _in_ascii]
        unanswered: Stamp | None = None
        was_gone = False
        rescheduled = False
        while True:
            settlement = settle(
                claim,
                outcome,
                self._policy_of(claim),
                now=finished_at,
                earliest=earliest,
                rescheduled=rescheduled,
            )
            try:
                result = self._store.record(settlement, then)
                if isinstance(result, Lost) and was_gone:
                    # It may have been an attempt of our own: only its answer was lost.
                    result = self._store.recorded_unanswered(settlement, unanswered) or result
            # A driver that cannot encode a text raises a ValueError of its own, no DBAPI error.
            except (DatabaseError, ValueError) as error:
                fault = fault_of(error)
                was_gone = was_gone or fault is Fault.GONE
                unanswered = unanswered or then
                # Recorded alone from now on: a failing record must not take a claim with it.
                then = None
                if fault is Fault.OTHER and plainer:
                    outcome = plainer.pop()(outcome)
                    continue
                # What was waited counts too: a test's clock may stand still.
                over = waited >= length or self._monotonic() >= give_up_at
                if over or fault not in (Fault.BUSY, Fault.GONE):
                    self._give_up(claim, error)
                    return None
                # Not on `stopping`, which would not wait at all while the process is being drained.
                time.sleep(pause)
                waited += pause
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            if not isinstance(result, Changed):
                return result if isinstance(result, Recorded) else None
            rescheduled = rescheduled or result.schedule != claim.schedule
            claim = replace(claim, schedule=result.schedule, asked_again=result.asked_again)

    def _give_up(self, claim: Claim, error: Exception) -> None:
        logger.error(
            "the outcome of %s could not be recorded (%s); it is in the log file",
            claim.name,
            type(error).__name__,
            extra={"action": "record_failed", "task": claim.name},
        )

    def _log(self, claim: Claim, outcome: Outcome, *, recorded: bool) -> None:
        what = outcome.status.value if recorded else f"{outcome.status.value} (not recorded)"
        rest = f"{claim.trigger}  {outcome.message}"
        # A line that stands for a record has no time to lose.
        note = self._logfile.note_in_burst if recorded else self._logfile.note
        note(claim.started_at, claim.name, what, outcome.ms, rest)
        level = logging.WARNING if outcome.error else logging.DEBUG
        if not logger.isEnabledFor(level):
            return
        logger.log(
            level,
            "%s %s after %s ms: %s",
            claim.name,
            what,
            outcome.ms,
            outcome.message,
            extra={"action": f"run_{outcome.status.value}", "task": claim.name},
        )


def _in_ascii(outcome: Outcome) -> Outcome:
    """Escape what a database in another encoding than UTF-8 may refuse."""
    error = None if outcome.error is None else _escaped(outcome.error)
    message = _escaped(outcome.message)
    if len(message) > MESSAGE_LENGTH:
        message = message[: MESSAGE_LENGTH - 4] + " ..."
    return replace(outcome, message=message, error=error)


def _escaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _without_texts(outcome: Outcome) -> Outcome:
    """Keep what happened, and say that the texts are in the log file only."""
    message = "The database refused this run's texts; the log file has its message."
    return replace(outcome, message=message, error=None, result=None, progress=None)
