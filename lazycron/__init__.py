"""Scheduled work for web apps that have no cron and no worker process."""

from lazycron.app import LazyCron
from lazycron.errors import (
    ArgumentsError,
    BusyError,
    ConfigurationError,
    DuplicateTaskError,
    KeyTakenError,
    LazyCronError,
    LeaseLostError,
    NotInstalledError,
    ScheduleError,
    UnknownTaskError,
)
from lazycron.jobs import Job, JobResult
from lazycron.once import First, Once
from lazycron.reports import Budget, Decision, RunResult, TickReport
from lazycron.retry import Retry
from lazycron.run import Postpone, Run
from lazycron.schedules import Crontab, Every, Schedule
from lazycron.statefile import State
from lazycron.status import Problem, TaskStatus
from lazycron.store import RunRecord
from lazycron.tasks import Task
from lazycron.why import Explanation, Reason

__all__ = [
    "ArgumentsError",
    "Budget",
    "BusyError",
    "ConfigurationError",
    "Crontab",
    "Decision",
    "DuplicateTaskError",
    "Every",
    "Explanation",
    "First",
    "Job",
    "JobResult",
    "KeyTakenError",
    "LazyCron",
    "LazyCronError",
    "LeaseLostError",
    "NotInstalledError",
    "Once",
    "Postpone",
    "Problem",
    "Reason",
    "Retry",
    "Run",
    "RunRecord",
    "RunResult",
    "Schedule",
    "ScheduleError",
    "State",
    "Task",
    "TaskStatus",
    "TickReport",
    "UnknownTaskError",
]
__version__ = "0.1.0"
