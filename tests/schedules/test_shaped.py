"""Windows and jitter: where a due time moves to, and that none is lost or doubled."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from lazycron.errors import ScheduleError
from lazycron.schedules.shaped import Crontab, Every, Schedule, Shaped, parse, shape, with_rhythm
from lazycron.schedules.windows import to_window

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    """Read an ISO moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shaped(
    rhythm: Every | Crontab,
    between: str | None = None,
    jitter: str | None = None,
    tz: str = "UTC",
    seed: str = "installation\nname",
) -> Shaped:
    """Shape a rhythm for one task of one installation."""
    made = shape(rhythm, between=between, jitter=jitter, tz=tz).seeded(seed)
    assert isinstance(made, Shaped)
    return made


# windows


@pytest.mark.parametrize(
    "between",
    ["", "02:00", "2-5", "02:00-02:00", "24:00-02:00", "02:60-03:00", "02:00-24:01", "00:00-0:00"],
)
def test_what_is_no_window_is_refused_with_what_is_accepted(between: str) -> None:
    """The value is named, too."""
    with pytest.raises(ScheduleError, match='is not a window; pass two times of day such as "02:0'):
        to_window(between, "UTC")


@pytest.mark.parametrize("between", [None, 5, b"02:00-05:00", ("02:00", "05:00")])
def test_a_window_is_a_text(between: object) -> None:
    """Anything else is named in the error."""
    with pytest.raises(ScheduleError, match="is not a window"):
        to_window(between, "UTC")


@pytest.mark.parametrize(
    ("between", "text"),
    [
        ("2:00 - 5:00", "02:00-05:00"),
        ("22:00-02:00", "22:00-02:00"),
        ("18:30-24:00", "18:30-24:00"),
    ],
)
def test_a_window_is_written_in_one_way(between: str, text: str) -> None:
    """So that a changed blank is no changed schedule."""
    assert to_window(between, "UTC").text == text


ADMITTED = [
    # window, zone, moment, first moment from then on, both in UTC
    ("02:00-05:00", "UTC", "2026-01-01 01:59", "2026-01-01 02:00"),
    ("02:00-05:00", "UTC", "2026-01-01 02:00", "2026-01-01 02:00"),
    ("02:00-05:00", "UTC", "2026-01-01 04:59:59", "2026-01-01 04:59:59"),
    ("02:00-05:00", "UTC", "2026-01-01 05:00", "2026-01-02 02:00"),
    ("02:00-05:00", BERLIN, "2026-01-01 00:00", "2026-01-01 01:00"),
    ("02:00-05:00", BERLIN, "2026-01-01 04:00", "2026-01-02 01:00"),
    ("22:00-02:00", "UTC", "2026-01-01 12:00", "2026-01-01 22:00"),
    ("22:00-02:00", "UTC", "2026-01-01 23:30", "2026-01-01 23:30"),
    ("22:00-02:00", "UTC", "2026-01-01 01:30", "2026-01-01 01:30"),
    ("22:00-02:00", "UTC", "2026-01-01 02:00", "2026-01-01 22:00"),
    ("22:00-00:00", "UTC", "2026-01-01 00:00", "2026-01-01 22:00"),
    ("18:00-24:00", "UTC", "2026-01-01 23:59", "2026-01-01 23:59"),
    ("00:00-24:00", "UTC", "2026-01-01 12:00", "2026-01-01 12:00"),
    # Berlin's clocks go from 02:00 to 03:00 at 01:00 UTC: the window opens in its middle.
    ("02:00-05:00", BERLIN, "2026-03-29 00:30", "2026-03-29 01:00"),
    ("02:30-05:00", BERLIN, "2026-03-29 00:30", "2026-03-29 01:00"),
    ("03:30-05:00", BERLIN, "2026-03-29 00:30", "2026-03-29 01:30"),
    # A window that is skipped as a whole is not open on that day.
    ("02:00-02:30", BERLIN, "2026-03-29 00:30", "2026-03-30 00:00"),
    # And from 03:00 back to 02:00 at 01:00 UTC: it opens twice.
    ("02:15-02:30", BERLIN, "2026-10-25 00:00", "2026-10-25 00:15"),
    ("02:15-02:30", BERLIN, "2026-10-25 00:30", "2026-10-25 01:15"),
    ("02:15-02:30", BERLIN, "2026-10-25 01:30", "2026-10-26 01:15"),
    ("01:00-02:30", BERLIN, "2026-10-25 00:45", "2026-10-25 01:00"),
    # Half an hour on Lord Howe, and Apia's day that never was.
    ("02:00-02:30", "Australia/Lord_Howe", "2026-10-03 15:00", "2026-10-04 15:00"),
    ("01:45-02:00", "Australia/Lord_Howe", "2026-04-04 15:00", "2026-04-04 15:15"),
    ("02:00-05:00", "Pacific/Apia", "2011-12-29 15:00", "2011-12-30 12:00"),
    ("22:00-02:00", "Pacific/Apia", "2011-12-30 09:59", "2011-12-30 09:59"),
    ("22:00-02:00", "Pacific/Apia", "2011-12-30 10:00", "2011-12-30 10:00"),
]


@pytest.mark.parametrize(("between", "zone", "moment", "expected"), ADMITTED)
def test_a_window_opens_by_the_clocks_of_its_zone(
    between: str, zone: str, moment: str, expected: str
) -> None:
    """Open moments stay, others move to the next opening."""
    window = to_window(between, zone)
    assert window.admitted(at(moment)) == at(expected)
    assert window.is_open(at(expected))


WINDOWS = st.tuples(st.integers(0, 47), st.integers(1, 47)).map(
    lambda pair: (
        f"{pair[0] // 2:02}:{pair[0] % 2 * 30:02}-"
        f"{(pair[0] + pair[1]) % 48 // 2:02}:{(pair[0] + pair[1]) % 2 * 30:02}"
    )
)
CHANGES = st.sampled_from(
    [
        (BERLIN, at("2026-03-29 01:00")),
        (BERLIN, at("2026-10-25 01:00")),
        ("Australia/Lord_Howe", at("2026-04-04 15:00")),
        ("Australia/Lord_Howe", at("2026-10-03 15:30")),
        ("Pacific/Apia", at("2011-12-30 10:00")),
        ("UTC", START),
    ]
)


@given(WINDOWS, CHANGES, st.integers(-1440, 1440))
def test_openings_and_closings_are_what_a_clock_on_the_wall_shows(
    between: str, change: tuple[str, datetime], minutes: int
) -> None:
    """Minute by minute around the changes of the clocks."""
    zone, moment = change[0], change[1] + minutes * MINUTE
    window = to_window(between, zone)

    def is_open(when: datetime) -> bool:
        opens, closes = between.split("-")
        shows = when.astimezone(ZoneInfo(zone)).strftime("%H:%M")
        if opens < closes:
            return opens <= shows < closes
        return shows >= opens or shows < closes

    after = (moment + n * MINUTE for n in range(4 * 1440))
    if is_open(moment):
        assert window.admitted(moment) == moment
        assert window.closing(moment) == next(m for m in after if not is_open(m))
    else:
        assert window.admitted(moment) == next(m for m in after if is_open(m))
        before = (moment - n * MINUTE for n in range(1, 4 * 1440))
        assert window.closed_since(moment) == next(m for m in before if is_open(m)) + MINUTE


def test_what_falls_outside_of_a_window_is_due_at_its_opening() -> None:
    """At noon daily, by night only: at two o'clock, once."""
    nightly = shaped(Crontab("0 12 * * *"), "02:00-05:00")
    assert nightly.upcoming(at("2026-01-01 03:00"), 2) == [
        at("2026-01-02 02:00"),
        at("2026-01-03 02:00"),
    ]
    # The noon that has passed waits for two o'clock, too.
    assert nightly.next_after(at("2026-01-01 13:00")) == at("2026-01-02 02:00")


def test_a_rhythm_goes_on_within_its_window() -> None:
    """Every quarter of an hour between two and three; the rest of the day is one opening."""
    quarters = shaped(Crontab("*/15 * * * *"), "02:00-03:00")
    found = [f"{due:%d %H:%M}" for due in quarters.upcoming(at("2026-01-01 02:20"), 4)]
    assert found == ["01 02:30", "01 02:45", "02 02:00", "02 02:15"]


def test_an_interval_in_a_window_goes_on_at_its_opening() -> None:
    """Every hour between two and five: at 02:00, 03:00 and 04:00."""
    hourly = shaped(Every("1h"), "02:00-05:00")
    found = [f"{due:%d %H:%M}" for due in hourly.upcoming(START, 4)]
    assert found == ["01 02:00", "01 03:00", "01 04:00", "02 02:00"]


@given(
    st.sampled_from(["*/15 * * * *", "0 12 * * *", "30 3 * * *", "0 */5 * * 1", "10 2,23 * * *"]),
    WINDOWS,
    CHANGES,
    st.integers(-3000, 3000),
    st.integers(0, 600),
)
def test_a_windowed_crontab_is_the_set_of_its_moved_times(
    expression: str, between: str, change: tuple[str, datetime], minutes: int, more: int
) -> None:
    """The oracle moves each time by itself; and later moments have no earlier times."""
    zone, moment = change[0], change[1] + minutes * MINUTE
    crontab, window = Crontab(expression, tz=zone), to_window(between, zone)
    schedule = shaped(crontab, between)
    nominal = moment - 8 * DAY
    moved: list[datetime] = []
    while not moved or moved[-1] <= moment:
        nominal = crontab.next_after(nominal)
        moved.append(window.admitted(nominal))
    found = schedule.next_after(moment)
    assert found == min(due for due in moved if due > moment)
    assert window.is_open(found)
    assert schedule.next_after(moment + more * MINUTE) >= found


# jitter


def test_jitter_puts_a_time_off_by_less_than_its_length_and_always_alike() -> None:
    """The same task of the same installation at the same time: the same."""
    daily = shaped(Crontab("0 3 * * *"), jitter="5m")
    dues = daily.upcoming(START, 30)
    delays = [due - at(f"{due:%Y-%m-%d} 03:00") for due in dues]
    assert all(timedelta(0) <= delay < timedelta(minutes=5) for delay in delays)
    assert len(set(delays)) > 20
    assert dues == shaped(Crontab("0 3 * * *"), jitter="5m").upcoming(START, 30)
    assert dues != shaped(Crontab("0 3 * * *"), jitter="5m", seed="another").upcoming(START, 30)


def test_jitter_spreads_installations_over_its_length() -> None:
    """A thousand of them: no minute of the hour without one, and none with more than 45."""
    nominal = at("2026-01-01 03:00")
    dues = [
        shaped(Crontab("0 3 * * *"), jitter="1h", seed=f"{number}\nname").due_for(nominal)
        for number in range(1000)
    ]
    counts = [
        sum(nominal + n * MINUTE <= due < nominal + (n + 1) * MINUTE for due in dues)
        for n in range(60)
    ]
    assert min(counts) > 0
    assert max(counts) < 45


@pytest.mark.parametrize(
    ("expression", "jitter", "between"),
    [
        ("0 3 * * *", "5m", None),
        ("50 23 * * *", "1h", None),
        ("0 3 * * *", "30d", None),
        ("*/5 * * * *", "1h", None),
        ("0 12 * * *", "2h", "02:00-05:00"),
        ("*/30 * * * *", "20m", "22:00-02:00"),
        ("0 0 1 * *", "10d", None),
    ],
)
def test_each_nominal_time_has_one_due_time_of_its_own(
    expression: str, jitter: str, between: str | None
) -> None:
    """From any moment on: later ones have later times, and none is passed over."""
    schedule = shaped(Crontab(expression), between, jitter)
    plain = shaped(Crontab(expression), between, "0.5s")  # too short to be anything
    nominal = START - 2 * schedule.jitter
    expected: list[datetime] = []
    while len(expected) < 60:
        nominal = plain.nominal_after(nominal)
        due = schedule.due_for(nominal)
        # What came before may be due only now.
        expected += [due] if due > START else []
    assert all(first < second for first, second in pairwise(expected))
    assert schedule.upcoming(START, 60) == expected
    for first, second in pairwise(expected):
        assert schedule.next_after(first) == second
        assert schedule.next_after(second - timedelta(microseconds=1)) == second
    if schedule.window is not None:
        assert all(map(schedule.window.is_open, expected))


@pytest.mark.parametrize(
    ("expression", "between", "moment"),
    [
        ("* * 1-15 * *", None, "2026-01-16 12:00"),
        ("* * 1-15 * *", None, "2026-01-15 23:59"),
        ("* * 1-15 * *", "22:00-02:00", "2026-01-20 12:00"),
        ("*/2 0-12 * 1,3,5 sat", None, "2026-02-14 12:00"),
        ("0-58 * 1,2,28 * *", None, "2026-03-01 00:30"),
        ("* * * * *", None, "2026-01-16 12:00"),
        ("0 3 1 * *", None, "2026-01-30 12:00"),
    ],
)
def test_jitter_longer_than_the_way_to_the_next_time_is_looked_up_in_few_steps(
    expression: str, between: str | None, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in times that cronsim is asked for: a month of minutes is not walked through."""
    schedule = shaped(Crontab(expression), between, jitter="30d")
    steps, step = [0], CronSim.__next__

    def counting(simulated: CronSim) -> datetime:
        steps[0] += 1
        return step(simulated)

    monkeypatch.setattr(CronSim, "__next__", counting)
    due = schedule.next_after(at(moment))
    assert due > at(moment)
    assert steps[0] < 150


@given(
    st.sampled_from(["* 3 1-3 * *", "*/20 * * * sat,sun", "0 3 * * *", "15 */6 1,9 * *"]),
    st.sampled_from([None, "02:00-05:00", "22:00-02:00"]),
    st.sampled_from(["90s", "10m", "5h", "3d", "30d"]),
    st.integers(0, 60 * 24 * 60),
)
def test_the_time_that_jitter_still_holds_back_is_found_as_by_walking(
    expression: str, between: str | None, jitter: str, minutes: int
) -> None:
    """The first nominal time whose due time is yet to come, among all of the two months before."""
    schedule = shaped(Crontab(expression), between, jitter)
    moment = at("2026-03-01") + minutes * MINUTE + timedelta(seconds=7)
    nominal = schedule.following(moment - 62 * DAY)
    while schedule.due_for(nominal) <= moment:
        nominal = schedule.following(nominal)
    assert schedule.nominal_after(moment) == nominal


def test_a_jittered_interval_keeps_its_phase() -> None:
    """Thirty days of a daily task with three hours of jitter: thirty runs, and no drift."""
    daily = shaped(Every("day"), jitter="3h")
    nominal = daily.nominal_after(START)
    starts: list[datetime] = []
    for _ in range(30):
        start = daily.due_for(nominal, starts[-1] if starts else None) + timedelta(minutes=4)
        starts.append(start)
        nominal = daily.after_run(nominal, start)
    assert nominal == START + 31 * DAY
    assert all(second - first >= 0.9 * DAY for first, second in pairwise(starts))


@pytest.mark.parametrize(
    ("interval", "jitter", "runs"),
    [("5m", "5m", 8640), ("1h", "50m", 720), ("1h", "30m", 720), ("1h", "2h", 720)],
)
@pytest.mark.parametrize("seed", ["x", "y", "installation\nname"])
def test_a_jittered_interval_loses_no_run(interval: str, jitter: str, runs: int, seed: str) -> None:
    """Thirty days with a beat whenever one is due: as many runs as without jitter, in phase."""
    schedule = shaped(Every(interval), jitter=jitter, seed=seed)
    length = Every(interval).interval
    dues = schedule.upcoming(START, runs + 1)
    delay = dues[0] - START - length
    assert timedelta(0) <= delay < min(length, schedule.jitter)
    assert all(second - first == length for first, second in pairwise(dues))
    assert sum(due <= START + 30 * DAY + delay for due in dues) == runs


def test_intervals_of_installations_are_spread() -> None:
    """A thousand of them: no minute of the hour without one."""
    nominal = START + HOUR
    delays = {
        (shaped(Every("1h"), jitter="1h", seed=f"{n}\nname").due_for(nominal) - nominal) // MINUTE
        for n in range(1000)
    }
    assert delays == set(range(60))


def test_a_jittered_interval_in_a_window_has_all_of_its_runs() -> None:
    """Three each night, whatever the delay, and none once the window has closed."""
    for number in range(30):
        hourly = shaped(Every("1h"), "02:00-05:00", "1h", seed=f"{number}")
        dues = hourly.upcoming(START, 90)
        assert dues[-1] < START + 30 * DAY
        assert hourly.window is not None
        assert all(map(hourly.window.is_open, dues))


def test_a_jittered_interval_run_by_hand_before_its_delay_is_over_keeps_its_phase() -> None:
    """The run stands for the nominal time."""
    hourly = shaped(Every("1h"), jitter="50m", seed="x")
    nominal = hourly.nominal_after(START)
    delay = hourly.due_for(nominal) - nominal
    assert delay > MINUTE
    following = hourly.after_run(nominal, nominal + delay / 2)
    assert following == nominal + HOUR


def test_what_is_only_put_off_is_not_missed() -> None:
    """Two hours were missed, the third one's delay is not over: it is the next one."""
    hourly = shaped(Every("1h"), jitter="50m", seed="x")
    nominal = hourly.nominal_after(START)
    now = hourly.due_for(nominal) + 2 * HOUR - timedelta(seconds=1)
    assert hourly.after_missed(nominal, now) == nominal + 2 * HOUR


INTERVALS = st.timedeltas(min_value=timedelta(seconds=1), max_value=30 * DAY)


@given(
    INTERVALS,
    st.none() | st.sampled_from(["1s", "5m", "3h", "2d"]),
    st.lists(st.floats(0, 2), min_size=2, max_size=30),
)
def test_runs_never_come_closer_than_nine_tenths_of_an_interval_nor_more_often_than_it(
    interval: timedelta, jitter: str | None, lateness: list[float]
) -> None:
    """However late each of them begins, with and without jitter."""
    every = shape(Every(interval), between=None, jitter=jitter, tz="UTC").seeded("seed")
    nominal, start = every.nominal_after(START), None
    starts: list[datetime] = []
    for late in lateness:
        start = every.due_for(nominal, start) + late * interval
        starts.append(start)
        nominal = every.after_run(nominal, start)
    tolerance = timedelta(microseconds=1)
    assert all(b - a >= 0.9 * interval - tolerance for a, b in pairwise(starts))
    for number, started in enumerate(starts):
        assert started >= START + (number + 1) * interval


@given(INTERVALS, st.timedeltas(min_value=timedelta(0), max_value=3653 * DAY))
def test_an_interval_that_was_missed_goes_on_in_its_phase(
    interval: timedelta, late: timedelta
) -> None:
    """By division, not by steps: ten years late takes no longer than a minute."""
    following = Every(interval).after_missed(START, START + late)
    assert START + late < following <= START + late + interval
    assert (following - START) % interval == timedelta(0)


# texts

SHAPES: list[tuple[Schedule, str, str]] = [
    (
        shaped(Every("1h"), "02:00-05:00", "5m", BERLIN),
        "every 1h tz=Europe/Berlin between=02:00-05:00 jitter=5m",
        "every hour between 02:00 and 05:00 in Europe/Berlin, up to 5 minutes later",
    ),
    (shaped(Every("1h"), jitter="5m"), "every 1h jitter=5m", "every hour, up to 5 minutes later"),
    (
        shaped(Crontab("0 3 * * *", tz=BERLIN), "22:00-06:00"),
        "crontab 0 3 * * * tz=Europe/Berlin between=22:00-06:00",
        "at 03:00 in Europe/Berlin between 22:00 and 06:00",
    ),
    (
        shaped(Crontab("0 3 * * *"), jitter="1h30m"),
        "crontab 0 3 * * * tz=UTC jitter=1h30m",
        "at 03:00 in UTC, up to 1 hour 30 minutes later",
    ),
]


@pytest.mark.parametrize(("schedule", "text", "words"), SHAPES, ids=[one[1] for one in SHAPES])
def test_a_shape_is_stored_as_a_text_and_said_in_words(
    schedule: Schedule, text: str, words: str
) -> None:
    """The text has all of it and reads back."""
    assert (schedule.text, str(schedule)) == (text, words)
    assert parse(text) == schedule
    assert parse(text).seeded("x").upcoming(START, 5) == schedule.seeded("x").upcoming(START, 5)


def test_no_shape_leaves_a_schedule_as_it_is() -> None:
    """Nothing given, or a jitter of zero."""
    assert type(shape(Every(60), between=None, jitter=None, tz="UTC")) is Every
    assert type(shape(Every(60), between=None, jitter=0, tz="UTC")) is Every


@pytest.mark.parametrize("jitter", [-1, "soonish", "31d", float("nan"), True])
def test_a_jitter_is_a_duration_of_thirty_days_at_most(jitter: str) -> None:
    """The error names it and what is accepted."""
    with pytest.raises(ScheduleError, match=r"jitter .* is not accepted; pass"):
        shape(Every(60), between=None, jitter=jitter, tz="UTC")


def test_a_shape_is_not_shaped_again() -> None:
    """The error says what can be."""
    once = shaped(Every(60), jitter="5s")
    with pytest.raises(ScheduleError, match="go with an Every or a Crontab"):
        shape(once, between="02:00-05:00", jitter=None, tz="UTC")


def test_a_shape_that_no_row_could_hold_is_refused() -> None:
    """With its window and jitter a text may be too long that was not without."""
    crontab = Crontab(",".join(["1"] * 185) + " * * * *")
    with pytest.raises(ScheduleError, match="longer than a row's schedule may be"):
        shaped(crontab, "02:00-05:00")


@pytest.mark.parametrize(
    "text",
    [
        "every 1h tz=UTC",
        "every 1h between=02:00",
        "every 1h jitter=soon",
        "every 1h moon=full",
        "crontab 0 3 * * * between=02:00-05:00",
        "crontab 0 3 * * * tz=UTC moon=full",
    ],
)
def test_a_text_with_options_that_nobody_wrote_cannot_be_read(text: str) -> None:
    """Somebody else's row, or a later version's."""
    with pytest.raises(ScheduleError):
        parse(text)


def test_another_rhythm_keeps_window_and_jitter() -> None:
    """As an operator's interval does; the window keeps its zone."""
    crontab = shaped(Crontab("0 3 * * *", tz=BERLIN), "22:00-06:00", "5m")
    assert with_rhythm(Every("2h"), crontab).text == (
        "every 2h tz=Europe/Berlin between=22:00-06:00 jitter=5m"
    )
    assert with_rhythm(Every("2h"), Every("1h")).text == "every 2h"


def test_a_shape_backs_off_as_its_rhythm_does() -> None:
    """And is retried no later than its next time."""
    assert shaped(Every("1h"), jitter="5m").retry_base == HOUR
    assert shaped(Every("1h"), jitter="5m").latest_retry(START) is None
    nightly = shaped(Crontab("0 3 * * *"), jitter="5m")
    assert nightly.retry_base == MINUTE
    assert nightly.latest_retry(START) == at("2026-01-01 03:00")
