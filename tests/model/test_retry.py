"""How long to wait after failures and losses."""

from datetime import timedelta
from typing import Any

import pytest

from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.retry import Retry

MINUTE = timedelta(minutes=1)


def seconds(waits: list[timedelta]) -> list[float]:
    """Return waits in seconds."""
    return [wait.total_seconds() for wait in waits]


def test_waits_double_six_times_and_end_at_six_hours() -> None:
    """A minute's base: 2, 4, 8, 16, 32, 64 and again 64 minutes."""
    waits = [Retry().after_failure(n, MINUTE) for n in (1, 2, 3, 4, 5, 6, 7, 1000)]
    assert seconds(waits) == [120, 240, 480, 960, 1920, 3840, 3840, 3840]


def test_waits_are_six_hours_at_most() -> None:
    """An hour's base: 2, 4, then 6 hours."""
    waits = [Retry().after_failure(n, timedelta(hours=1)) for n in (1, 2, 3, 4)]
    assert seconds(waits) == [7200, 14400, 21600, 21600]


def test_the_first_loss_has_no_wait_and_the_next_ones_double() -> None:
    """A minute's base: at once, then 2, 4, 8, 16, 32, 64 and again 64 minutes."""
    waits = [Retry().after_loss(n, MINUTE) for n in (1, 2, 3, 4, 5, 6, 7, 8, 1000)]
    assert seconds(waits) == [0, 120, 240, 480, 960, 1920, 3840, 3840, 3840]


def test_base_factor_and_cap_can_be_chosen() -> None:
    """Ten seconds' base, factor 3, at most two minutes: 30, 90, 120, 120."""
    retry = Retry(base="10s", factor=3, cap="2m")
    assert seconds([retry.after_failure(n, MINUTE) for n in (1, 2, 3, 4)]) == [30, 90, 120, 120]


def test_the_largest_factor_does_not_overflow() -> None:
    """Six hours, whatever comes before."""
    assert Retry(factor=1000).after_failure(6, timedelta(days=3653)) == timedelta(hours=6)


WRONG = [
    ({"limit": 0}, "Retry(limit=0): pass a whole number from 1 up"),
    ({"limit": True}, "Retry(limit=True)"),
    ({"limit": 2.0}, "Retry(limit=2.0)"),
    ({"limit": "5"}, "Retry(limit='5')"),
    ({"factor": 0.5}, "Retry(factor=0.5): pass a number from 1 to 1000"),
    ({"factor": "2"}, "Retry(factor='2')"),
    ({"factor": None}, "Retry(factor=None)"),
    ({"factor": True}, "Retry(factor=True)"),
    ({"factor": float("nan")}, "Retry(factor=nan)"),
    ({"factor": float("inf")}, "Retry(factor=inf)"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=range(len(WRONG)))
def test_what_could_not_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    """The error names the setting, the value and what to pass."""
    with pytest.raises(ConfigurationError) as caught:
        Retry(**options)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("option", ["base", "cap"])
def test_durations_that_cannot_be_read_are_refused(option: str) -> None:
    """The error names the setting."""
    options: dict[str, Any] = {option: "soonish"}
    with pytest.raises(ScheduleError, match=rf"^Retry\({option}\) 'soonish' is not accepted"):
        Retry(**options)
