"""Store a run's outcome, whatever the database is doing, and write a line to the log file."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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


Plainer = Callable[[Outcome], Outcome]


@dataclass(slots=True, kw_only=True)
class _Recording:
    """One run that is being stored: what is tried, and what earlier tries have shown."""

    claim: Claim
    outcome: Outcome
    finished_at: datetime
    earliest: datetime
    then: Stamp | None
    give_up_at: float
    patience: float
    plainer: list[Plainer]
    pause: float = FIRST_PAUSE
    waited: float = 0.0
    unanswered: Stamp | None = None
    was_gone: bool = False
    rescheduled: bool = False

    def note(self, fault: Fault) -> None:
        """Note a failed try. The next one only records: if it fails, no claim may fail with it."""
        self.was_gone = self.was_gone or fault is Fault.GONE
        self.unanswered = self.unanswered or self.then
        self.then = None

    def follow(self, changed: Changed) -> None:
        """Apply what was changed since the claim, to settle again."""
        self.rescheduled = self.rescheduled or changed.schedule != self.claim.schedule
        self.claim = replace(self.claim, schedule=changed.schedule, asked_again=changed.asked_again)

    def is_out_of_time(self, monotonic: float) -> bool:
        """Tell whether it was tried for long enough, also where a test's clock stands still."""
        return self.waited >= self.patience or monotonic >= self.give_up_at


@dataclass(kw_only=True)
class Recorder:
    """Settles and records runs."""

    store: Store
    policy_of: Callable[[Claim], Policy]
    logfile: LogFile
    monotonic: Callable[[], float]

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

        A database that fails is tried again until `give_up_at`. An outcome that it refuses is
        stored in plain ASCII, then without its texts. Returns None for a run whose row is no longer
        ours, and for one that could not be stored; both are in the log file.
        """
        recording = _Recording(
            claim=claim,
            outcome=outcome,
            finished_at=claim.started_at + timedelta(milliseconds=outcome.ms or 0),
            earliest=earliest,
            then=then,
            give_up_at=give_up_at,
            patience=give_up_at - self.monotonic(),
            plainer=[_without_texts, _in_ascii],
        )
        recorded = self._record(recording)
        self._log(claim, outcome, recorded=recorded is not None)
        return recorded

    def begin(self, claim: Claim) -> None:
        """Write the waiting lines to the log file, before a run that may end the process."""
        self.logfile.before_run_of(claim.name)

    def flush(self) -> None:
        """Write all lines to the log file."""
        self.logfile.flush()

    def _record(self, recording: _Recording) -> Recorded | None:
        while True:
            try:
                result = self._try(recording)
            # A driver that cannot encode a text raises a ValueError, not a DBAPI error.
            except (DatabaseError, ValueError) as error:
                if not self._can_try_again(recording, fault_of(error)):
                    self._give_up(recording.claim, error)
                    return None
                continue
            if not isinstance(result, Changed):
                return result if isinstance(result, Recorded) else None
            recording.follow(result)

    def _try(self, recording: _Recording) -> Recorded | Changed | Lost:
        settlement = settle(
            recording.claim,
            recording.outcome,
            self.policy_of(recording.claim),
            now=recording.finished_at,
            earliest=recording.earliest,
            rescheduled=recording.rescheduled,
        )
        result = self.store.record(settlement, recording.then)
        if isinstance(result, Lost) and recording.was_gone:
            # An earlier try may have been stored although its answer was lost.
            return self.store.recorded_unanswered(settlement, recording.unanswered) or result
        return result

    def _can_try_again(self, recording: _Recording, fault: Fault) -> bool:
        """Prepare another try, with plainer texts or after a pause; False if it is over."""
        recording.note(fault)
        if fault is Fault.OTHER and recording.plainer:
            recording.outcome = recording.plainer.pop()(recording.outcome)
            return True
        if fault not in (Fault.BUSY, Fault.GONE) or recording.is_out_of_time(self.monotonic()):
            return False
        # Not on `stopping`, which would not wait at all during a drain.
        time.sleep(recording.pause)
        recording.waited += recording.pause
        recording.pause = min(recording.pause * 2, LONGEST_PAUSE)
        return True

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
        # A line that replaces a record is written at once.
        note = self.logfile.note_in_burst if recorded else self.logfile.note
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
    """Keep what happened, and say that the texts are only in the log file."""
    message = "The database refused this run's texts; the log file has its message."
    return replace(outcome, message=message, error=None, result=None, progress=None)
