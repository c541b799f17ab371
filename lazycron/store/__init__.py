"""Every SQL statement lazycron sends; one small module per kind of row and per dialect."""

from lazycron.store.claims import Stamp, new_token
from lazycron.store.driver.faults import DatabaseError, Fault, fault_of, said_by
from lazycron.store.history import SLICE, Counted, RunRecord
from lazycron.store.jobs import JobCounts, JobRow, Jobs
from lazycron.store.probe import Probe
from lazycron.store.recurring import MISSED, Place, TaskRow
from lazycron.store.settlements import Abandoned, Changed, Lost, Recorded
from lazycron.store.shared import INSTALLATION, Action
from lazycron.store.store import Store

__all__ = [
    "INSTALLATION",
    "MISSED",
    "SLICE",
    "Abandoned",
    "Action",
    "Changed",
    "Counted",
    "DatabaseError",
    "Fault",
    "JobCounts",
    "JobRow",
    "Jobs",
    "Lost",
    "Place",
    "Probe",
    "Recorded",
    "RunRecord",
    "Stamp",
    "Store",
    "TaskRow",
    "fault_of",
    "new_token",
    "said_by",
]
