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
from lazycron.model.job import Job, JobResult
from lazycron.model.once import First, Once
from lazycron.model.report import Budget, Decision, RunResult, TickReport
from lazycron.model.retry import Retry
from lazycron.model.run import Postpone, Run
from lazycron.model.task import Task
from lazycron.schedules.shaped import Crontab, Every, Schedule
from lazycron.statefile import State
from lazycron.store import RunRecord
from lazycron.tick.why import Explanation, Reason
from lazycron.verbs.check import Problem
from lazycron.verbs.overview import TaskStatus

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
