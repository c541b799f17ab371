"""When a new task runs first: its interval counts from its row's making, which is a beat."""

from datetime import timedelta

from lazycron import LazyCron
from lazycron.testing import ManualClock
from tests.conftest import START
from tests.scenes import row_of


def test_one_interval_counts_from_the_first_beat_and_not_from_registration(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Registered at midnight and first visited at two, an hourly task is due at three."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.task(every="day", first_run="soon", name="soon")(lambda: None)
    clock.tick("2h")
    cron.run_due("traffic")
    assert row_of(cron, "hourly").next_run_at == START + timedelta(hours=3)
    assert row_of(cron, "soon").next_run_at == START + timedelta(hours=2, minutes=2)
