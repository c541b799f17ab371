"""Settings are checked once, the bad one is named, and secrets are shown nowhere."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lazycron.clock import SystemClock
from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.report import Budget
from lazycron.model.retry import Retry
from lazycron.settings import Settings, check_settings
from lazycron.testing import ManualClock

SECRET = "correct horse battery staple"


def settings(**given: Any) -> Settings:
    """Check settings with the defaults of LazyCron."""
    defaults: dict[str, Any] = {
        "secret": None,
        "state_file": None,
        "budget": Budget(),
        "lease": "5m",
        "retry": Retry(),
        "tz": "UTC",
        "keep_runs": 100,
        "keep_age": "30d",
        "create_tables": None,
        "drain": "10s",
        "enabled": None,
        "clock": None,
    }
    return check_settings(**(defaults | given))


def test_durations_become_timedeltas() -> None:
    """Lease, age and drain; zero is a drain too."""
    checked = settings(lease=90, keep_age="2d", drain=0)
    assert checked.lease == timedelta(seconds=90)
    assert checked.keep_age == timedelta(days=2)
    assert checked.drain == timedelta(0)


def test_the_clock_is_the_systems_unless_one_is_given() -> None:
    """A manual one, say."""
    clock = ManualClock(0)
    assert isinstance(settings().clock, SystemClock)
    assert settings(clock=clock).clock is clock


TAKEN = 'lazycron\'s log and lock files have such names; pass one such as "state.json"'


@pytest.mark.parametrize("path", ["state.json", Path("state.json")])
def test_a_state_file_is_a_text_or_a_path(path: str | Path) -> None:
    """Kept as an absolute path: the process may change its folder before the first use."""
    assert settings(state_file=path).state_file == Path("state.json").absolute()


WRONG = [
    ("secret", 12345678901234567890, "secret is neither a text nor a list of texts"),
    ("secret", SECRET.encode(), "secret is neither a text nor a list of texts"),
    ("secret", [SECRET, None], "secret is neither a text nor a list of texts"),
    ("secret", {SECRET: 1}, "secret is neither a text nor a list of texts"),
    ("state_file", 5, "state_file=5: pass the path of a file"),
    ("state_file", "", "state_file='': pass the path of a file"),
    ("state_file", b"state", "state_file=b'state': pass the path of a file"),
    *(
        ("state_file", name, f"state_file={name!r}: {TAKEN}")
        for name in ("state.lazycron.log", "state.lazycron.lock", "STATE.LazyCron.LOG")
    ),
    ("state_file", "a\x00b", "state_file='a\\x00b': pass the path of a file"),
    ("budget", 3, "budget=3: pass a Budget(…)"),
    ("budget", None, "budget=None: pass a Budget(…)"),
    ("retry", 3, "retry=3: pass a Retry(…)"),
    ("keep_runs", 0, "keep_runs=0: pass a whole number from 1 up"),
    ("keep_runs", True, "keep_runs=True: pass a whole number from 1 up"),
    ("keep_runs", 1.5, "keep_runs=1.5: pass a whole number from 1 up"),
    ("create_tables", "yes", "create_tables='yes': pass True, False or None"),
    ("enabled", 1, "enabled=1: pass True, False or None"),
    ("clock", 5, "clock=5: pass an object with now() and monotonic()"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG, ids=range(len(WRONG)))
def test_a_bad_setting_is_named_with_what_to_pass(name: str, value: object, text: str) -> None:
    """And with its value, unless that is a secret."""
    with pytest.raises(ConfigurationError) as caught:
        settings(**{name: value})
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("lease", "0.5s", "from 1 second to"),
        ("lease", float("nan"), "from 1 second to"),
        ("keep_age", 0, "from 1 second to"),
        ("keep_age", "soonish", "from 1 second to"),
        ("drain", -5, "from zero to"),
        ("drain", None, "from zero to"),
    ],
)
def test_a_bad_duration_is_named_with_what_is_accepted(
    name: str, value: object, accepted: str
) -> None:
    """Value and bounds."""
    with pytest.raises(ScheduleError) as caught:
        settings(**{name: value})
    assert str(caught.value).startswith(f"{name} {value!r} is not accepted")
    assert accepted in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", 5, None])
def test_an_unknown_zone_is_refused_at_once(zone: object) -> None:
    """Not only when the first crontab is registered."""
    with pytest.raises(ScheduleError, match=r"is unknown; pass an IANA name such as"):
        settings(tz=zone)


# secrets


def test_secrets_come_in_order_and_the_first_makes_tokens() -> None:
    """One text, or a list for rotation."""
    assert settings(secret=SECRET).good_secrets() == (SECRET,)
    new = "the new secret, longer"
    assert settings(secret=[new, SECRET]).good_secrets() == (new, SECRET)
    assert settings(secret=(new, SECRET)).good_secrets() == (new, SECRET)


def test_a_secret_of_fewer_than_16_characters_makes_no_tokens() -> None:
    """It is kept, so that check() can say so."""
    checked = settings(secret=["x" * 15, "y" * 16])
    assert checked.all_secrets() == ("x" * 15, "y" * 16)
    assert checked.good_secrets() == ("y" * 16,)


def test_the_environment_gives_the_secret_where_none_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read when it is asked for; an empty one is none."""
    checked = settings()
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    assert checked.all_secrets() == ()
    monkeypatch.setenv("LAZYCRON_SECRET", "")
    assert checked.all_secrets() == ()
    monkeypatch.setenv("LAZYCRON_SECRET", SECRET)
    assert checked.all_secrets() == (SECRET,)
    assert settings(secret="given in the code").all_secrets() == ("given in the code",)


@pytest.mark.parametrize(
    "bad", [SECRET.encode(), {SECRET}, {SECRET: 1}, iter([SECRET]), [SECRET, 1], (None, SECRET)]
)
def test_a_bad_secret_is_not_shown(bad: object) -> None:
    """It may be most of a good one."""
    with pytest.raises(ConfigurationError) as caught:
        settings(secret=bad)
    assert "horse" not in str(caught.value)


def test_settings_shown_in_a_traceback_or_debugger_show_no_secret() -> None:
    """Their repr leaves it out."""
    checked = settings(secret=[SECRET])
    assert "horse" not in repr(checked) + str(checked)
    assert "keep_runs=100" in repr(checked)


# on and off


@pytest.mark.parametrize(
    ("enabled", "environment", "on"),
    [
        (None, None, True),
        (None, "on", True),
        (None, "off", False),
        (None, " OFF ", False),
        (True, "off", True),
        (False, None, False),
    ],
)
def test_ticks_are_on_unless_the_environment_or_the_code_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, *, enabled: bool | None, environment: str | None, on: bool
) -> None:
    """LAZYCRON=off, and `enabled` before it."""
    monkeypatch.delenv("LAZYCRON", raising=False)
    if environment is not None:
        monkeypatch.setenv("LAZYCRON", environment)
    assert settings(enabled=enabled).is_on is on
    assert os.environ.get("LAZYCRON") == environment
