"""What keeps a task from running, each with a word of its own."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lazycron.texts import at


class Reason(StrEnum):
    """What keeps a task from running."""

    # there is nothing to run
    UNKNOWN_NAME = "unknown_name"
    UNKNOWN_CODE = "unknown_code"
    NO_SCHEDULE = "no_schedule"
    NO_ROW = "no_row"
    NOT_INSTALLED = "not_installed"
    UNREACHABLE = "unreachable"
    # the row says so
    DISABLED = "disabled"
    RUNNING = "running"
    HANGING = "hanging"
    LOST = "lost"
    FAILED = "failed"
    POSTPONED = "postponed"
    PAUSED = "paused"
    MISSED = "missed"
    WINDOW = "window"
    NOT_DUE = "not_due"
    # it is due, and has not run yet
    DUE = "due"
    ONLY_ON = "only_on"
    OFF = "off"
    SWITCHED_OFF = "switched_off"
    LOOP = "loop"
    HANGING_TICKS = "hanging_ticks"
    BUDGET = "budget"
    RARE_BEATS = "rare_beats"
    NO_REQUEST = "no_request"
    NO_LOOK = "no_look"
    STATE_FILE = "state_file"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running now; `str()` is a sentence or two.

    The last sentence says what would make it run.
    """

    reason: Reason
    text: str

    def __str__(self) -> str:
        return self.text


def unlooked(ended_at: datetime) -> str:
    """Say that a process ended before its look, and what helps."""
    return (
        f"the last process that answered a visitor here ended at {at(ended_at)} before it could "
        "look for due tasks, and none has looked since; where each request has a process of its "
        'own, as with CGI, tick_in="request" and traffic=True let it run what is due'
    )
