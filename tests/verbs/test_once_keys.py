"""Once keys whose effect was perhaps never done: named, listed, finished and released by hand."""

from datetime import timedelta

from lazycron import LazyCron
from lazycron.schema import once_key
from lazycron.testing import ManualClock
from tests.conftest import START
from tests.scenes import claim_by_name


def begin(cron: LazyCron, key: str, task: str | None = None) -> None:
    """Register a key and die before its end."""
    cron._once(key, expires=None, connection=None, task=task).__enter__()


def doubtful(cron: LazyCron) -> list[str]:
    """Return what check says of once keys."""
    return [one.text for one in cron.check() if one.name == "unfinished_keys"]


def test_a_key_whose_effect_is_not_finished_after_an_hour_is_named(
    cron: LazyCron, clock: ManualClock
) -> None:
    """One that is finished never, and one that has expired neither."""
    begin(cron, "welcome-ada")
    with cron.once("done"):
        pass
    cron._once("short", expires="1m", connection=None, task=None).__enter__()
    clock.tick("59m")
    assert doubtful(cron) == []
    clock.tick("1m")
    (text,) = doubtful(cron)
    assert "not finished: welcome-ada. Whoever asks for one is refused" in text
    assert [one.key for one in cron.once_keys(unfinished=True)] == ["welcome-ada"]
    assert sorted(one.key for one in cron.once_keys()) == ["done", "short", "welcome-ada"]


def test_a_key_whose_run_was_lost_is_named_at_once(cron: LazyCron, clock: ManualClock) -> None:
    """A key of the same task that was registered in another run is not."""
    cron.task(every="1h", name="mail")(lambda: None)
    cron.sync()
    clock.tick("1h")
    claim_by_name(cron, "mail", clock.now())
    begin(cron, "welcome-ada", "mail")
    clock.tick("1s")
    cron.release("mail", force=True)
    clock.tick("1s")
    begin(cron, "welcome-bob", "mail")
    (text,) = doubtful(cron)
    assert "not finished: welcome-ada. " in text
    found = {one.key: (one.task, one.lost) for one in cron.once_keys(unfinished=True)}
    assert found == {"welcome-ada": ("mail", True), "welcome-bob": ("mail", False)}


def test_a_key_is_finished_or_released_by_hand(cron: LazyCron) -> None:
    """Finished, it is refused as done; released, the effect is the next caller's."""
    begin(cron, "ada")
    begin(cron, "bob")
    assert (cron.finish_once("ada"), cron.release_once("bob")) == (True, True)
    with cron.once("ada") as again:
        assert not again
        assert str(again) == "done already, at 2026-01-01 00:00:00 UTC"
    with cron.once("bob") as again:
        assert again
    for verb in (cron.finish_once, cron.release_once):
        assert [verb(key) for key in ("ada", "bob", "nobody")] == [False] * 3
    assert {one.key for one in cron.once_keys()} == {"ada", "bob"}


def test_a_refusal_tells_done_from_perhaps_never_done(cron: LazyCron, clock: ManualClock) -> None:
    """In words, and by is_finished; why counts both apart."""
    begin(cron, "ada")
    clock.tick("1h")
    with cron.once("ada") as refused:
        assert (bool(refused), refused.is_finished) == (False, False)
        assert str(refused) == (
            "begun at 2026-01-01 00:00:00 UTC and not finished: it is under way, or was cut off "
            "and perhaps never done"
        )
    (one,) = cron.once_keys(unfinished=True)
    assert (one.refused, one.created_at, one.finished_at) == (1, START, None)


def test_keys_released_by_hand_are_not_finished_by_their_late_owner(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Its end is of another registration."""
    slow = cron._once("ada", expires=None, connection=None, task=None)
    slow.__enter__()
    cron.release_once("ada")
    clock.tick(timedelta(seconds=1))
    begin(cron, "ada")
    slow.__exit__(None, None, None)
    (one,) = cron.once_keys(unfinished=True)
    assert one.created_at == START + timedelta(seconds=1)
    with cron._parts.store.engine.begin() as connection:
        assert connection.execute(once_key.select()).one().finished_at is None
