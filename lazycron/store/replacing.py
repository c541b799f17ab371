"""A job gets other arguments, or goes: each guarded by what was seen."""

from sqlalchemy import and_, bindparam, case, delete, func, null, or_, update

from lazycron.model.settle import RECURRING
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.unfinished import TakingAway

IS_JOB = or_(t.c.key.is_(null()), t.c.key != RECURRING)
# A running job keeps its lease; when its run is recorded, that shows that it was asked for again.
# Whether it runs must still be as it was seen.
AS_SEEN = and_(
    t.c.id == bindparam("p_id"),
    t.c.key == bindparam("p_key"),
    func.coalesce(t.c.lock_token, "") == bindparam("p_token"),
    t.c.scheduled_for == bindparam("p_seen", type_=UTCDateTime),
)
REPLACE = (
    update(t)
    .where(AS_SEEN)
    .ordered_values(
        (t.c.arguments, bindparam("p_arguments")),
        (
            t.c.asked_again,
            case((t.c.lock_token.is_(null()), null()), else_=bindparam("p_due", type_=UTCDateTime)),
        ),
        (
            t.c.scheduled_for,
            case(
                (t.c.lock_token.is_(null()), bindparam("p_scheduled_for", type_=UTCDateTime)),
                else_=t.c.scheduled_for,
            ),
        ),
        (
            t.c.next_run_at,
            case(
                (t.c.lock_token.is_(null()), bindparam("p_due", type_=UTCDateTime)),
                else_=t.c.next_run_at,
            ),
        ),
        (t.c.attempts, case((t.c.lock_token.is_(null()), 0), else_=t.c.attempts)),
        (t.c.failures, case((t.c.lock_token.is_(null()), 0), else_=t.c.failures)),
        (t.c.losses, case((t.c.lock_token.is_(null()), 0), else_=t.c.losses)),
        # The progress of the old arguments means nothing for the new ones.
        (t.c.progress, null()),
        (t.c.progress_done, null()),
        (t.c.progress_total, null()),
    )
)
REPLACE_WAITING = TakingAway(
    REPLACE, and_(AS_SEEN, t.c.lock_token.is_(null())), "Replaced by other arguments"
)

DISCARD = TakingAway(
    delete(t),
    and_(
        t.c.id == bindparam("p_id"),
        IS_JOB,
        or_(t.c.lock_token.is_(null()), t.c.next_run_at <= bindparam("p_now", type_=UTCDateTime)),
    ),
    "Discarded",
)
