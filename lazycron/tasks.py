"""A task: a named function with a schedule, or without one."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.outcomes import OnLost, Policy
from lazycron.retry import Retry
from lazycron.run import Run
from lazycron.schedules import Crontab, Every, Schedule
from lazycron.schema import NAME_LENGTH

SOON = timedelta(minutes=2)
SHORTEST_LEASE = timedelta(seconds=1)
FirstRun = Duration | Literal["soon"] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One registered function; calling the task calls the function."""

    function: Callable[..., Any]
    name: str
    label: str
    explanation: str
    schedule: Schedule | None
    first_run: timedelta | None
    enabled: bool
    retry: Retry
    lease: timedelta | None
    on_lost: OnLost
    timeout: timedelta | None
    run_parameter: str | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function, as if it had never been registered."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def policy(self) -> Policy:
        """What the registration says about the next run after one has ended."""
        return Policy(schedule=self.schedule, retry=self.retry, on_lost=self.on_lost)

    def first_due(self, now: datetime) -> datetime | None:
        """Return when a row made now is due first; None for a task without a schedule."""
        if self.schedule is None:
            return None
        if self.first_run is None:
            return self.schedule.next_after(now)
        return now + self.first_run


def to_schedule(
    every: Duration | None,
    crontab: str | None,
    schedule: Schedule | None,
    tz: str | None,
    default_tz: str,
) -> Schedule | None:
    """Build the one schedule that a task's options name; raises ScheduleError for two."""
    given = [name for name, value in _named(every, crontab, schedule) if value is not None]
    if len(given) > 1:
        message = f"a task takes one of every=, crontab= and schedule=, not {' and '.join(given)}"
        raise ScheduleError(message)
    if tz is not None and crontab is None:
        message = f"tz={tz!r} goes with crontab=; intervals are elapsed time and know no zone"
        raise ScheduleError(message)
    if every is not None:
        return Every(every)
    if crontab is not None:
        return Crontab(crontab, tz=tz or default_tz)
    if schedule is not None and not isinstance(schedule, Schedule):
        message = f"schedule={schedule!r} is no schedule; pass an Every or a Crontab"
        raise ScheduleError(message)
    return schedule


def _named(*values: object) -> list[tuple[str, object]]:
    return list(zip(("every", "crontab", "schedule"), values, strict=True))


def make_task(
    function: Callable[..., Any],
    *,
    schedule: Schedule | None,
    name: str | None,
    label: str | None,
    explanation: str | None,
    first_run: FirstRun,
    enabled: bool,
    retry: Retry,
    lease: Duration | None,
    on_lost: OnLost,
    timeout: Duration | None,
) -> Task:
    """Check a task's options once and build it."""
    _check_function(function)
    name = function.__name__ if name is None else name
    run_parameter = find_run_parameter(function)
    _check_name(name)
    if schedule is not None:
        _check_callable_alone(function, run_parameter)
    if on_lost not in get_args(OnLost):
        message = f'on_lost={on_lost!r}: pass "rerun" or "skip"'
        raise ConfigurationError(message)
    if not isinstance(enabled, bool):
        message = f"enabled={enabled!r}: pass True or False"
        raise ConfigurationError(message)
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    return Task(
        function=function,
        name=name,
        label=name.replace("_", " ") if label is None else label,
        explanation=first_line if explanation is None else explanation,
        schedule=schedule,
        first_run=_first_run(first_run),
        enabled=enabled,
        retry=retry,
        lease=_optional(lease, "lease", SHORTEST_LEASE),
        on_lost=on_lost,
        timeout=_optional(timeout, "timeout", timedelta(milliseconds=1)),
        run_parameter=run_parameter,
    )


def _first_run(value: FirstRun) -> timedelta | None:
    if value is None:
        return None
    if value == "soon":
        return SOON
    try:
        return to_duration(value, what="first_run")
    except ScheduleError as error:
        message = f'{error}; or "soon" (two minutes)'
        raise ScheduleError(message) from None


def _optional(value: Duration | None, what: str, least: timedelta) -> timedelta | None:
    return None if value is None else to_duration(value, what=what, least=least)


def _check_function(function: object) -> None:
    if not callable(function) or not hasattr(function, "__name__"):
        message = f"{function!r} is no function; cron.task decorates functions"
        raise ConfigurationError(message)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{function.__name__} is a generator function; a task is a plain function yet"
        raise ConfigurationError(message)


def _check_name(name: object) -> None:
    ok = (
        isinstance(name, str)
        and 0 < len(name) <= NAME_LENGTH
        and name == name.strip()
        and name.isprintable()
    )
    if not ok:
        message = (
            f"task name {name!r} is not accepted; pass 1 to {NAME_LENGTH} printable characters "
            "without blanks at either end"
        )
        raise ConfigurationError(message)


def _check_callable_alone(function: Callable[..., Any], run_parameter: str | None) -> None:
    """Refuse a scheduled function that has a parameter which nobody would fill in."""
    for parameter in inspect.signature(function).parameters.values():
        open_ended = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if (
            parameter.name == run_parameter
            or open_ended
            or parameter.default is not parameter.empty
        ):
            continue
        message = (
            f"task {function.__name__} is scheduled, but nothing fills in its parameter "
            f"{parameter.name!r}; give it a default, or annotate it Run"
        )
        raise ConfigurationError(message)


def find_run_parameter(function: Callable[..., Any]) -> str | None:
    """Find the parameter that is annotated Run, be the annotation a class or a text."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        # A name imported for the type checker only; then the text must do.
        signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        annotation = parameter.annotation
        if annotation is Run:
            return parameter.name
        if isinstance(annotation, str) and annotation.strip("\"' ").split(".")[-1] == Run.__name__:
            return parameter.name
    return None
