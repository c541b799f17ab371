"""When a task is due: words, bounds, the beat, crontabs and their zones."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazycron.durations import Duration
from lazycron.errors import ScheduleError
from lazycron.schedules.shaped import Crontab, Every, parse

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    """Read an ISO moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# intervals


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("minute", 60), ("hour", 3600), ("day", 86400), ("week", 604800), (" Hour ", 3600)],
)
def test_every_takes_four_words(word: str, seconds: int) -> None:
    """Minute, hour, day and week."""
    assert Every(word).interval == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", [1, "1s", 0.1e1, timedelta(days=3653), "3653d", "1h30m"])
def test_every_takes_one_second_to_ten_years(value: Duration) -> None:
    """Both ends included."""
    assert timedelta(seconds=1) <= Every(value).interval <= timedelta(days=3653)


WRONG_INTERVALS = [
    0,
    -5,
    0.999,
    float("nan"),
    float("inf"),
    "",
    "soonish",
    "minutes",
    "0s",
    1e308,
    10**400,
    True,
    None,
    timedelta(0),
    timedelta(days=3653, seconds=1),
    "3654d",
]


@pytest.mark.parametrize("value", WRONG_INTERVALS, ids=range(len(WRONG_INTERVALS)))
def test_any_other_interval_is_refused_with_what_is_accepted(value: Duration) -> None:
    """The error names forms, bounds and words; it is a ValueError too."""
    with pytest.raises(ValueError, match=r"^every .* is not accepted; pass ") as caught:
        Every(value)
    assert isinstance(caught.value, ScheduleError)
    assert str(caught.value).endswith(
        'such as "90s", "15m", "1h30m" or "2d", from 1 second to 3653 days; '
        "or one of the words minute, hour, day, week"
    )


@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        ("minute", "every 1m", "every minute"),
        ("1s", "every 1s", "every second"),
        (900, "every 15m", "every 15 minutes"),
        ("1h30m", "every 1h30m", "every 1 hour 30 minutes"),
        ("11d", "every 11d", "every 11 days"),
        (1.5, "every 1.5s", "every 1.5 seconds"),
        ("week", "every 7d", "every 7 days"),
    ],
)
def test_an_interval_is_stored_as_a_text_and_said_in_words(
    value: Duration, text: str, words: str
) -> None:
    """Two intervals of one length are the same schedule."""
    every = Every(value)
    assert (every.text, str(every)) == (text, words)
    assert parse(text) == every == Every(every.interval)
    assert hash(parse(text)) == hash(every)


def test_schedules_of_different_texts_differ() -> None:
    """A changed schedule is seen by its text."""
    assert Every("1m") != Every("61s")
    assert Crontab("0 3 * * *") != Crontab("0 3 * * *", tz="Europe/Istanbul")
    assert Every("1m") != "every 1m"


@given(st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3653)))
def test_every_interval_reads_back_from_its_row(interval: timedelta) -> None:
    """To the microsecond."""
    back = parse(Every(interval).text)
    assert isinstance(back, Every)
    assert back.interval == interval


def test_an_interval_is_due_one_interval_after_a_moment() -> None:
    """Elapsed time, whatever clocks on walls do."""
    assert Every("1d").next_after(at("2026-03-28 12:00")) == at("2026-03-29 12:00")


# after a run


def test_a_run_on_the_beat_keeps_the_phase() -> None:
    """Due at 12:00:00, begun 0.4 s late: due again at 12:05:00."""
    due = at("2026-01-01 12:00:00")
    assert Every("5m").after_run(due, due + timedelta(seconds=0.4)) == at("2026-01-01 12:05:00")


def test_the_phase_is_kept_up_to_a_tenth_of_the_interval() -> None:
    """Due at noon, every 100 s: begun 10 s late still 100 s after noon; 11 s late 101 s."""
    due = at("2026-01-01 12:00:00")
    assert Every(100).after_run(due, due + timedelta(seconds=10)) == at("2026-01-01 12:01:40")
    assert Every(100).after_run(due, due + timedelta(seconds=11)) == at("2026-01-01 12:01:41")


def test_a_late_run_moves_the_phase() -> None:
    """Due at noon, every hour, begun at 12:30: due again 54 minutes later, at 13:24."""
    due = at("2026-01-01 12:00")
    assert Every("1h").after_run(due, at("2026-01-01 12:30")) == at("2026-01-01 13:24")


@pytest.mark.parametrize("late", [timedelta(days=1), timedelta(days=3653)])
def test_missed_beats_are_not_made_up_for(late: timedelta) -> None:
    """A day late, ten years late: one run, and the next one 0.9 intervals later."""
    assert Every(60).after_run(START, START + late) == START + late + timedelta(seconds=54)


def test_a_row_written_by_a_clock_ahead_waits_one_interval_at_most() -> None:
    """Due in a future that another host's clock was in: the next time is an interval from now."""
    assert Every("5m").after_run(START + timedelta(days=30), START) == START + 5 * MINUTE


def simulate(interval: timedelta, beats: list[datetime]) -> list[datetime]:
    """Run a task of this interval at the beats at which it is due; return the starts."""
    every, starts = Every(interval), []
    due = every.next_after(START)
    for beat in beats:
        if due <= beat:
            starts.append(beat)
            due = every.after_run(due, beat)
    return starts


@pytest.mark.parametrize("seed", range(10))
def test_a_monitor_that_pings_every_five_minutes_serves_a_five_minute_task(seed: int) -> None:
    """2,000 pings, each up to half a second early or late: at least 1,990 runs."""
    dice = random.Random(seed)
    beats = [
        START + 5 * MINUTE * n + timedelta(seconds=dice.uniform(-0.5, 0.5)) for n in range(2000)
    ]
    assert 1990 <= len(simulate(5 * MINUTE, beats)) <= 2000


@pytest.mark.parametrize("seed", range(10))
def test_a_task_never_runs_faster_on_average_than_its_interval(seed: int) -> None:
    """Visitors come at random, about every 20 s: n runs of a minute task take n - 1 minutes."""
    dice = random.Random(seed)
    beats, moment = [], START
    for _ in range(5000):
        moment += timedelta(seconds=dice.expovariate(1 / 20))
        beats.append(moment)
    starts = simulate(MINUTE, beats)
    # The first run may itself be late by a visitor, and nothing else is ever made up for.
    first_due = START + MINUTE
    for number, start in enumerate(starts):
        assert start >= first_due + number * MINUTE
    assert len(starts) > 3 * (moment - START) / MINUTE / 4


@given(
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3653)),
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3653)),
)
def test_the_next_due_time_is_never_less_than_an_interval_after_the_last(
    interval: timedelta, late: timedelta
) -> None:
    """Nor more than one after the start."""
    following = Every(interval).after_run(START, START + late)
    assert START + interval <= following <= START + late + interval


# crontabs


def test_a_crontab_is_due_at_its_wall_clock_time() -> None:
    """Half past three, in UTC where nothing else is said."""
    assert Crontab("30 3 * * *").next_after(START) == at("2026-01-01 03:30")


def test_a_crontab_is_due_later_than_the_moment_never_at_it() -> None:
    """At half past three sharp the next time is tomorrow's."""
    assert Crontab("30 3 * * *").next_after(at("2026-01-01 03:30")) == at("2026-01-02 03:30")


def test_a_crontab_knows_a_zone_and_answers_in_utc() -> None:
    """Half past three in Istanbul, all the year three hours ahead."""
    due = Crontab("30 3 * * *", tz="Europe/Istanbul").next_after(START)
    assert due == at("2026-01-01 00:30")
    assert due.tzinfo is UTC


def test_a_crontab_takes_a_moment_of_any_zone() -> None:
    """The same instant gives the same answer."""
    moment = START.astimezone(ZoneInfo("Asia/Tokyo"))
    assert Crontab("30 3 * * *").next_after(moment) == at("2026-01-01 03:30")


def dues(crontab: Crontab, moment: datetime, count: int) -> list[str]:
    """Return the next due times in UTC."""
    found = []
    for _ in range(count):
        moment = crontab.next_after(moment)
        found.append(f"{moment:%d %H:%M}")
    return found


def test_a_daily_time_that_the_spring_jumps_over_is_due_at_the_jump() -> None:
    """02:30 in Berlin on 29 March 2026 does not exist: due at 03:00 there, 01:00 UTC."""
    berlin = Crontab("30 2 * * *", tz="Europe/Berlin")
    assert dues(berlin, at("2026-03-28 00:00"), 3) == ["28 01:30", "29 01:00", "30 00:30"]


def test_a_daily_time_that_the_autumn_repeats_is_due_once() -> None:
    """02:30 in Berlin on 25 October 2026 comes at 00:30 and 01:30 UTC: due at the first."""
    berlin = Crontab("30 2 * * *", tz="Europe/Berlin")
    assert dues(berlin, at("2026-10-24 12:00"), 2) == ["25 00:30", "26 01:30"]


def test_an_hourly_crontab_goes_on_every_hour_through_both_changes() -> None:
    """Elapsed hours, none left out and none twice."""
    berlin = Crontab("0 * * * *", tz="Europe/Berlin")
    hours = ["28 23:00", "29 00:00", "29 01:00", "29 02:00"]
    assert dues(berlin, at("2026-03-28 22:30"), 4) == hours
    hours = ["24 23:00", "25 00:00", "25 01:00", "25 02:00"]
    assert dues(berlin, at("2026-10-24 22:30"), 4) == hours


def test_day_of_month_and_day_of_week_together_mean_either() -> None:
    """The 13th, and every Friday; 2026-01-02 is one."""
    assert dues(Crontab("0 0 13 * 5"), START, 3) == ["02 00:00", "09 00:00", "13 00:00"]


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun"])
def test_sunday_has_three_names(sunday: str) -> None:
    """0, 7 and SUN; 2026-01-04 is the first."""
    assert Crontab(f"0 0 * * {sunday}").next_after(START) == at("2026-01-04 00:00")


def test_the_29th_of_february_is_due_in_leap_years() -> None:
    """Next in 2028."""
    assert Crontab("0 0 29 2 *").next_after(START) == at("2028-02-29 00:00")


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "60 * * * *", "* 24 * * *", "x * * * *"]
)
def test_a_crontab_that_never_matches_or_cannot_be_read_is_refused(expression: str) -> None:
    """The error names the expression."""
    with pytest.raises(ScheduleError) as caught:
        Crontab(expression)
    assert f"crontab {expression!r}" in str(caught.value)


@pytest.mark.parametrize("expression", ["", "soonish", "* * * *", "* * * * * *", "@reboot"])
def test_a_crontab_has_five_fields(expression: str) -> None:
    """The error says which."""
    with pytest.raises(ScheduleError, match="needs five fields: minute hour day month weekday"):
        Crontab(expression)


@pytest.mark.parametrize("expression", [5, None, b"* * * * *"])
def test_a_crontab_is_a_text(expression: str) -> None:
    """Anything else is named in the error."""
    with pytest.raises(ScheduleError, match=r"is not a crontab expression: pass a text"):
        Crontab(expression)


def test_a_crontab_that_no_row_could_hold_is_refused() -> None:
    """A list of a thousand minutes would fail in the database at every tick."""
    with pytest.raises(ScheduleError, match="longer than a row's schedule may be: 400 characters"):
        Crontab(",".join(["1"] * 1000) + " * * * *")


@pytest.mark.parametrize(
    "zone", ["", "Nowhere/Land", "../../etc/passwd", "a\x00b", "Europe", "\udc80", "+03:00"]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """The error shows what a name looks like."""
    with pytest.raises(ScheduleError, match=r'is unknown; pass an IANA name such as "Europe/'):
        Crontab("0 3 * * *", tz=zone)


@pytest.mark.parametrize("zone", [None, 3])
def test_a_zone_is_a_text(zone: str) -> None:
    """Anything else is named in the error."""
    with pytest.raises(ScheduleError, match="is not a time zone: pass a text"):
        Crontab("0 3 * * *", tz=zone)


def test_a_crontab_reads_back_from_its_row() -> None:
    """Blanks are one blank; the zone comes along."""
    crontab = Crontab("  30  3 * *   MON-FRI ", tz="Europe/Istanbul")
    assert crontab.text == "crontab 30 3 * * MON-FRI tz=Europe/Istanbul"
    back = parse(crontab.text)
    assert back == crontab
    assert back.next_after(START) == crontab.next_after(START) == at("2026-01-01 00:30")
    assert str(crontab) == "at 03:30 on Monday through Friday in Europe/Istanbul"


@pytest.mark.parametrize("text", ["", "every", "every soonish", "crontab * * * * *", "lunar 3"])
def test_a_row_that_cannot_be_read_is_a_schedule_error(text: str) -> None:
    """Somebody else's row, or a later version's."""
    with pytest.raises(ScheduleError):
        parse(text)


def test_a_crontab_goes_on_after_the_start_of_a_run() -> None:
    """Due at 3:00 daily, begun two days late: one run, and the next at the next 3:00."""
    crontab = Crontab("0 3 * * *")
    assert crontab.after_run(at("2026-01-01 03:00"), at("2026-01-03 02:00")) == at(
        "2026-01-03 03:00"
    )


def test_a_crontab_does_not_come_back_to_the_time_it_has_just_worked_off() -> None:
    """A host whose clock is a little behind began before the due time."""
    crontab = Crontab("0 3 * * *")
    assert crontab.after_run(at("2026-01-01 03:00"), at("2026-01-01 02:59:59")) == at(
        "2026-01-02 03:00"
    )


def test_the_backoff_base_is_the_interval_but_at_least_a_minute() -> None:
    """A crontab's is a minute."""
    assert Every(10).retry_base == MINUTE
    assert Every("1h").retry_base == timedelta(hours=1)
    assert Crontab("0 3 * * *").retry_base == MINUTE
