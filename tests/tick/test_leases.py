"""What the renewal thread does when the host's wall clock is put right under a run."""

import threading
from datetime import datetime, timedelta

import pytest

from lazycron.model.settle import Claim
from lazycron.testing import ManualClock
from lazycron.tick.leases import Leases
from tests.conftest import START


def a_claim() -> Claim:
    """Return a claim whose lease ends in five minutes."""
    return Claim(
        id=1,
        name="long",
        key="",
        token="t",
        schedule="every 1h",
        scheduled_for=START,
        started_at=START,
        lease_until=START + timedelta(minutes=5),
        trigger="manual",
        attempt=1,
        failures=0,
        losses=0,
    )


@pytest.mark.parametrize("step", [timedelta(hours=2), timedelta(hours=-2)])
def test_a_step_of_the_clock_renews_every_lease_at_once(step: timedelta) -> None:
    """Long before a third of it is over: a process that starts just now cannot know of the step."""
    clock = ManualClock(START)
    looked, renewed = threading.Event(), threading.Event()
    ends: list[datetime] = []

    def renew(claim: Claim, until: datetime) -> bool:
        del claim
        ends.append(until)
        renewed.set()
        return True

    class Watched(ManualClock):
        def now(self) -> datetime:
            if threading.current_thread().name == "lazycron-leases":
                looked.set()
            return clock.now()

        def monotonic(self) -> float:
            return clock.monotonic()

    leases = Leases(renew, lambda: None, Watched(START))
    try:
        with leases.hold(a_claim(), timedelta(minutes=5), None, clock.now):
            assert looked.wait(5)
            assert not renewed.is_set()
            clock.jump(step)
            assert renewed.wait(5)
    finally:
        leases.stop()
    assert ends[0] == START + step + timedelta(minutes=5)
