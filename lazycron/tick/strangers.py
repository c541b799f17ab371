"""Tasks that are not in this code, but that another process had recently."""

import logging
from collections.abc import Container, Iterable
from datetime import datetime, timedelta

from lazycron.store import TaskRow

logger = logging.getLogger("lazycron")

# Rows are stamped once a day by processes whose code has the task, and on a quiet site later.
LATELY = timedelta(days=2)


def strangers(rows: Iterable[TaskRow], known: Container[str], now: datetime) -> dict[str, datetime]:
    """Return the enabled rows of other code in use, each with when it was last seen or ran."""
    found = {}
    for row in rows:
        seen = [moment for moment in (row.seen_at, row.last_run_at) if moment is not None]
        if row.enabled and row.name not in known and seen and max(seen) > now - LATELY:
            found[row.name] = max(seen)
    return found


def warn(found: dict[str, datetime]) -> None:
    """Warn about the tasks of other code."""
    logger.warning(
        "tasks of other code are in this database (%s): if another app's, give each app a database "
        "of its own; `lazycron check` says more",
        ", ".join(sorted(found)[:10]),
        extra={"action": "other_code"},
    )
