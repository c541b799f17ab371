"""Every SQL statement lazycron sends; one small module per kind of row and per dialect."""

from lazycron.store.claims import Stamp, new_token
from lazycron.store.counted import Counted
from lazycron.store.driver.faults import DatabaseError, Fault, fault_of, said_by
from lazycron.store.history import SLICE, RunRecord
from lazycron.store.jobs import JobCounts, JobRow
from lazycron.store.jobstore import JobStore
from lazycron.store.rows import MISSED, TaskRow
from lazycron.store.settings import Action
from lazycron.store.settlements import Abandoned, Changed, Lost, Recorded
from lazycron.store.store import EPOCH, Store

__all__ = [
    "EPOCH",
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
    "JobStore",
    "Lost",
    "Recorded",
    "RunRecord",
    "Stamp",
    "Store",
    "TaskRow",
    "fault_of",
    "new_token",
    "said_by",
]
