"""What a process last saw."""

from datetime import UTC, datetime, timedelta

from lazycron.facts import EPOCH, Facts

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_database_that_could_not_be_asked_is_left_alone_for_half_a_minute() -> None:
    """Attempts are spaced out; the outage began with the first."""
    facts = Facts()
    assert facts.may_ask(1000.0)
    facts.out_of_order("OperationalError", NOW, 1000.0)
    assert not facts.may_ask(1029.9)
    assert facts.may_ask(1030.0)
    facts.out_of_order("OperationalError", NOW + timedelta(seconds=30), 1030.0)
    assert facts.outage is not None
    assert (facts.outage.since, facts.outage.error) == (NOW, "OperationalError")
    assert not facts.may_ask(1059.9)


def test_an_outage_that_is_over_holds_nobody_back() -> None:
    """The next one is a new one."""
    facts = Facts()
    facts.out_of_order("OperationalError", NOW, 1000.0)
    facts.outage = None
    assert facts.may_ask(1000.0)
    facts.out_of_order("TimeoutError", NOW + timedelta(hours=1), 4600.0)
    assert facts.outage is not None
    assert facts.outage.since == NOW + timedelta(hours=1)


def test_the_floor_is_forgotten_once_a_minute() -> None:
    """However often it is raised in between: rows may have become known."""
    facts = Facts()
    assert facts.floor_at(1000.0) == EPOCH
    facts.raise_floor(NOW, 1000.0)
    facts.raise_floor(NOW + timedelta(seconds=50), 1050.0)
    assert facts.floor_at(1059.9) == NOW + timedelta(seconds=50)
    assert facts.floor_at(1060.0) == EPOCH
    facts.raise_floor(NOW, 1060.0)
    assert facts.floor_at(1119.9) == NOW
