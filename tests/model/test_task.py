"""What a registration takes, checks and refuses."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.retry import Retry
from lazycron.model.run import Run
from lazycron.model.task import OnlyOn, Task, find_run_parameter, make_task, to_schedule
from lazycron.schedules.shaped import Crontab, Every
from tests import only_checked, postponed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make(function: Callable[..., Any], **options: Any) -> Task:
    """Make a task with the defaults of `cron.task`."""
    defaults: dict[str, Any] = {
        "schedule": Every("1h"),
        "name": None,
        "label": None,
        "explanation": None,
        "first_run": None,
        "enabled": True,
        "retry": Retry(),
        "lease": None,
        "on_lost": "rerun",
        "timeout": None,
    }
    return make_task(function, **(defaults | options))


def sweep_floor(broom: str = "old") -> str:
    """Sweep the floor.

    Every corner of it.
    """
    return f"Swept with the {broom} one."


# names, labels, calling


def test_a_task_is_named_labelled_and_explained_by_its_function() -> None:
    """The function's name, the same with blanks, the docstring's first line."""
    task = make(sweep_floor)
    assert (task.name, task.label) == ("sweep_floor", "sweep floor")
    assert task.explanation == "Sweep the floor."


def test_name_label_and_explanation_can_be_given() -> None:
    """They win."""
    task = make(sweep_floor, name="floor", label="The floor", explanation="")
    assert (task.name, task.label, task.explanation) == ("floor", "The floor", "")


def test_a_function_without_a_docstring_has_no_explanation() -> None:
    """And needs none."""
    assert make(lambda: None, name="plain").explanation == ""


def test_calling_a_task_just_calls_its_function() -> None:
    """With arguments and result."""
    assert make(sweep_floor)("new") == sweep_floor("new") == "Swept with the new one."


@pytest.mark.parametrize("name", ["a", "x" * 191, "Größe 5", "日本", "😀", "a/b:c"])
def test_a_name_is_1_to_191_printable_characters(name: str) -> None:
    """Of any script."""
    assert make(sweep_floor, name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "x" * 192, " a", "a ", "a\nb", "a\x00", "\udc80", "a\u2028b", 5, b"a"]
)
def test_any_other_name_is_refused(name: str) -> None:
    """The error names it and says what is accepted."""
    with pytest.raises(ConfigurationError, match="1 to 191 printable characters without blanks"):
        make(sweep_floor, name=name)


# what is no task


@pytest.mark.parametrize("thing", [5, "text", None, functools.partial(sweep_floor)])
def test_what_is_no_function_is_refused(thing: Callable[..., Any]) -> None:
    """A decorator put on the wrong thing."""
    with pytest.raises(ConfigurationError, match=r"is not a function; cron\.task decorates func"):
        make(thing)


def test_a_scheduled_function_whose_parameter_nobody_fills_in_is_refused() -> None:
    """It would fail every time."""

    def greet(name: str) -> None:
        """Greet somebody."""

    with pytest.raises(ConfigurationError, match="nothing fills in its parameter 'name'"):
        make(greet)
    assert make(greet, schedule=None).name == "greet"


def test_a_parameter_with_a_default_and_open_ended_ones_are_fine() -> None:
    """Nobody needs to fill them in."""

    def open_ended(a: int = 1, *args: int, b: int = 2, **kwargs: int) -> None:
        """Take anything."""

    assert make(open_ended).run_parameter is None


def test_a_builtin_that_does_not_say_what_it_takes_can_be_a_task() -> None:
    """Its parameters cannot be checked."""
    assert make(max, name="largest").run_parameter is None


WRONG = [
    ({"on_lost": "forget"}, 'on_lost=\'forget\': pass "rerun" or "skip"'),
    ({"enabled": 1}, "enabled=1: pass True or False"),
    ({"retry": 5}, "retry=5: pass a Retry(…)"),
    ({"label": 5}, "label=5: pass a text"),
    ({"explanation": b""}, "explanation=b'': pass a text"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=range(len(WRONG)))
def test_an_option_that_could_not_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    """The error names option, value and what to pass."""
    with pytest.raises(ConfigurationError) as caught:
        make(sweep_floor, **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "only_on", [[["cli"]], [{}], ("cli", None), [b"cli"], iter(()), {}, b"cli", "climb"]
)
def test_only_on_takes_triggers_and_nothing_else(only_on: OnlyOn) -> None:
    """Whatever it is, and be it unhashable, the error says what to pass."""
    with pytest.raises(ConfigurationError, match=r"only_on=.*: pass one or more of traffic, admin"):
        make(sweep_floor, only_on=only_on)


@pytest.mark.parametrize(
    "only_on", [("loop", "cli"), iter(["cli", "loop", "cli"]), {"cli": 1, "loop": 2}.keys()]
)
def test_only_on_takes_any_iterable(only_on: OnlyOn) -> None:
    """A generator, too."""
    assert make(sweep_floor, only_on=only_on).only_on == ("cli", "loop")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"first_run": 0}, "first_run=0"),
        ({"first_run": "soon"}, "first_run='soon'"),
        ({"missed": "skip"}, "missed='skip'"),
        ({"grace": "5m"}, "grace='5m'"),
    ],
)
def test_what_goes_with_a_schedule_is_refused_without_one(
    options: dict[str, Any], named: str
) -> None:
    """It would mean nothing; the default of missed= does no harm."""
    with pytest.raises(ScheduleError) as caught:
        make(sweep_floor, schedule=None, **options)
    assert str(caught.value) == f"{named} goes with a schedule: every=, crontab=, schedule="
    assert make(sweep_floor, schedule=None, missed="once").schedule is None


@pytest.mark.parametrize("between", [None, "02:00-05:00"])
def test_a_zone_beside_a_crontab_object_is_refused_with_where_to_say_it(
    between: str | None,
) -> None:
    """It has one already."""
    with pytest.raises(ScheduleError) as caught:
        to_schedule(None, None, Crontab("@daily"), "Asia/Tokyo", "UTC", between=between)
    assert str(caught.value) == (
        "tz='Asia/Tokyo' goes with crontab=; a Crontab has a zone of its own: "
        "schedule=Crontab(…, tz='Asia/Tokyo')"
    )


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("lease", "0.5s", "from 1 second to"),
        ("lease", -5, "from 1 second to"),
        ("timeout", 0, "from 0.001 seconds to"),
        ("timeout", "soonish", "from 0.001 seconds to"),
        ("first_run", -1, 'from zero to 3660 days; or "soon"'),
        ("first_run", "later", 'from zero to 3660 days; or "soon"'),
        ("first_run", float("nan"), 'from zero to 3660 days; or "soon"'),
        ("first_run", True, 'from zero to 3660 days; or "soon"'),
    ],
)
def test_a_duration_option_out_of_bounds_is_refused(
    option: str, value: object, accepted: str
) -> None:
    """The error names option, value and bounds."""
    with pytest.raises(ScheduleError) as caught:
        make(sweep_floor, **{option: value})
    assert str(caught.value).startswith(f"{option} {value!r} is not accepted")
    assert accepted in str(caught.value)


# when it is due first


@pytest.mark.parametrize(
    ("first_run", "after"),
    [(None, 3600), ("soon", 120), (0, 0), ("0s", 0), ("90s", 90), (timedelta(days=2), 172800)],
)
def test_the_first_run_is_one_interval_after_registration_or_as_said(
    first_run: object, after: int
) -> None:
    """Zero means at once, "soon" two minutes."""
    due = make(sweep_floor, first_run=first_run).first_due(NOW)
    assert due == NOW + timedelta(seconds=after)


def test_the_first_run_of_a_crontab_is_its_next_time() -> None:
    """Half past three."""
    due = make(sweep_floor, schedule=Crontab("30 3 * * *")).first_due(NOW)
    assert due == NOW + timedelta(hours=3, minutes=30)


def test_a_task_without_a_schedule_is_never_due() -> None:
    """It is only enqueued."""
    assert make(sweep_floor, schedule=None).first_due(NOW) is None


# the schedule


def test_a_schedule_comes_from_one_of_three_options() -> None:
    """Or from none."""
    assert to_schedule("1h", None, None, None, "UTC") == Every("1h")
    assert to_schedule(None, "0 3 * * *", None, None, "UTC") == Crontab("0 3 * * *")
    assert to_schedule(None, None, Every(60), None, "UTC") == Every(60)
    assert to_schedule(None, None, None, None, "UTC") is None


def test_two_schedules_are_refused() -> None:
    """The error names the two."""
    with pytest.raises(ScheduleError, match=r"not every and schedule$"):
        to_schedule("1h", None, Every(60), None, "UTC")
    with pytest.raises(ScheduleError, match=r"not every and crontab$"):
        to_schedule(0, "0 3 * * *", None, None, "UTC")


def test_a_crontab_has_the_apps_zone_or_its_own() -> None:
    """Its own wins."""
    app_wide = to_schedule(None, "0 3 * * *", None, None, "Europe/Berlin")
    own = to_schedule(None, "0 3 * * *", None, "Asia/Tokyo", "Europe/Berlin")
    assert app_wide == Crontab("0 3 * * *", tz="Europe/Berlin")
    assert own == Crontab("0 3 * * *", tz="Asia/Tokyo")


def test_a_zone_without_a_crontab_is_refused() -> None:
    """Intervals know no zone."""
    with pytest.raises(ScheduleError, match=r"tz='Asia/Tokyo' goes with crontab="):
        to_schedule("1h", None, None, "Asia/Tokyo", "UTC")


@pytest.mark.parametrize("schedule", ["1h", 60, Every])
def test_what_is_no_schedule_is_refused(schedule: Every) -> None:
    """The error says what to pass."""
    with pytest.raises(ScheduleError, match="is not a schedule; pass an Every or a Crontab"):
        to_schedule(None, None, schedule, None, "UTC")


# the parameter annotated Run


def by_class(first: int = 0, *, run: Run) -> str:
    """Take a run."""
    return f"{run.task} {first}"


def by_text(run: "Run") -> str:
    """Take a run."""
    return run.task


@pytest.mark.parametrize(
    "function",
    [
        by_class,
        by_text,
        postponed.by_name,
        postponed.by_another_name,
        postponed.by_module,
        postponed.with_a_missing_name,
        postponed.with_an_annotation_that_raises,
        only_checked.bare,
        only_checked.through_a_module,
    ],
)
def test_a_run_parameter_is_found_by_its_annotation(function: Callable[..., Any]) -> None:
    """A class, a text, a postponed one, one whose name is there for the type checker only."""
    assert find_run_parameter(function) == "run"


def test_a_run_parameter_is_found_behind_a_decorator() -> None:
    """One that uses functools.wraps."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it returns
            return function(*args, **kwargs)

        return wrapper

    @decorated
    def work(run: Run) -> None:
        """Work."""

    assert find_run_parameter(work) == "run"


def test_a_parameter_that_is_merely_named_run_is_not_filled_in() -> None:
    """The annotation says it, not the name."""

    def work(run: int = 1) -> None:
        """Work."""

    assert find_run_parameter(work) is None


def test_a_parameter_that_cannot_be_filled_in_by_its_name_is_not_taken() -> None:
    """Positional-only and open-ended ones."""

    def work(one: Run, /, *many: Run) -> None:
        """Work."""

    assert find_run_parameter(work) is None
    with pytest.raises(ConfigurationError, match="nothing fills in its parameter 'one'"):
        make(work)


# kinds of functions


def test_an_async_function_is_known_as_such() -> None:
    """And must be awaited."""

    async def work() -> None:
        """Work."""

    assert make(work).is_async
    assert not make(sweep_floor).is_async


def test_the_policy_is_what_the_registration_says() -> None:
    """Schedule, retry and what to do when lost."""
    retry = Retry(base="10s")
    policy = make(sweep_floor, retry=retry, on_lost="skip").policy
    assert (policy.schedule, policy.retry, policy.on_lost) == (Every("1h"), retry, "skip")
