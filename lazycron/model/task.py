"""A task: a named function with a schedule, or without one."""

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, TypedDict, get_args

from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.job import Enqueuer, Job, Using
from lazycron.model.report import TRIGGERS, Trigger
from lazycron.model.retry import Retry
from lazycron.model.run import Run
from lazycron.model.settle import OnLost, Policy
from lazycron.schedules.shaped import Crontab, Every, Schedule, shape
from lazycron.schema import NAME_LENGTH
from lazycron.texts import shown

SOON = timedelta(minutes=2)
SHORTEST_LEASE = timedelta(seconds=1)
FirstRun = Duration | Literal["soon"] | None
Missed = Literal["once", "skip"]
OnlyOn = Trigger | Iterable[Trigger] | None


@dataclass(frozen=True, kw_only=True, eq=False)
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
    missed: Missed = "once"
    grace: timedelta | None = None
    only_on: tuple[Trigger, ...] | None = None
    enqueuer: Enqueuer | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function, as if it had never been registered."""
        return self.function(*args, **kwargs)

    @cached_property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def policy(self) -> Policy:
        """What the registration says about the next run after one has ended."""
        return Policy(schedule=self.schedule, retry=self.retry, on_lost=self.on_lost)

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call: a job that runs after this response, or whenever its time comes.

        The arguments are stored as they are now. Raises ArgumentsError and BusyError.
        """
        return self._wishless().enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Do what `enqueue` does, from a coroutine."""
        return await self._wishless().aenqueue(*args, **kwargs)

    def using(self, **options: Any) -> Using:
        """Set options of the next job: key, delay or run_at, connection or on_commit.

        `on_conflict` says what happens if the key is taken: "keep" returns the waiting job,
        "replace" gives it these arguments, "raise" raises KeyTakenError.
        """
        return self._wishless().using(**options)

    def _wishless(self) -> Using:
        if self.enqueuer is None:
            message = f"task {self.name} belongs to no LazyCron, so it cannot be enqueued"
            raise ConfigurationError(message)
        return Using(self.name, self.enqueuer)

    def first_due(self, now: datetime) -> datetime | None:
        """Return when a row made now is first due; None for a task without a schedule."""
        if self.schedule is None:
            return None
        if self.first_run is None:
            return self.schedule.next_after(now)
        return self.schedule.admitted(now + self.first_run)

    def runs_on(self, trigger: str) -> bool:
        """Tell whether a tick of this trigger may run it."""
        return self.only_on is None or trigger in self.only_on


class TaskOptions(TypedDict, total=False):
    """What `cron.task` takes, for type checkers."""

    every: Duration | None
    crontab: str | None
    schedule: Schedule | None
    tz: str | None
    name: str | None
    label: str | None
    explanation: str | None
    first_run: FirstRun
    enabled: bool
    retry: Retry | None
    lease: Duration | None
    on_lost: OnLost
    timeout: Duration | None
    missed: Missed
    grace: Duration | None
    jitter: Duration | None
    between: str | None
    only_on: OnlyOn


def to_schedule(
    every: Duration | None,
    crontab: str | None,
    schedule: Schedule | None,
    tz: str | None,
    default_tz: str,
    *,
    between: str | None = None,
    jitter: Duration | None = None,
) -> Schedule | None:
    """Build the one schedule that a task's options name; raises ScheduleError for two."""
    made = _to_rhythm(every, crontab, schedule, tz, default_tz, windowed=between is not None)
    if made is None:
        _refuse_alone(between=between, jitter=jitter)
        return None
    return shape(made, between=between, jitter=jitter, tz=default_tz if tz is None else tz)


def _to_rhythm(
    every: Duration | None,
    crontab: str | None,
    schedule: Schedule | None,
    tz: str | None,
    default_tz: str,
    *,
    windowed: bool,
) -> Schedule | None:
    given = [name for name, value in _named(every, crontab, schedule) if value is not None]
    if len(given) > 1:
        message = f"a task takes one of every=, crontab= and schedule=, not {' and '.join(given)}"
        raise ScheduleError(message)
    knows_zone = crontab is not None or (windowed and not isinstance(schedule, Crontab))
    if tz is not None and not knows_zone and isinstance(schedule, Crontab):
        message = (
            f"tz={shown(tz)} goes with crontab=; a Crontab has a zone of its own: "
            f"schedule=Crontab(…, tz={shown(tz)})"
        )
        raise ScheduleError(message)
    if tz is not None and not knows_zone:
        message = (
            f"tz={shown(tz)} goes with crontab= or between=; "
            "intervals are elapsed time and know no zone"
        )
        raise ScheduleError(message)
    if every is not None:
        return Every(every)
    if crontab is not None:
        return Crontab(crontab, tz=default_tz if tz is None else tz)
    if schedule is not None and not isinstance(schedule, Schedule):
        message = f"schedule={shown(schedule)} is not a schedule; pass an Every or a Crontab"
        raise ScheduleError(message)
    return schedule


def _refuse_alone(**options: object) -> None:
    """Refuse options about due times where there are no due times."""
    for name, value in options.items():
        if value is not None:
            message = f"{name}={shown(value)} goes with a schedule: every=, crontab=, schedule="
            raise ScheduleError(message)


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
    missed: Missed = "once",
    grace: Duration | None = None,
    only_on: OnlyOn = None,
    enqueuer: Enqueuer | None = None,
) -> Task:
    """Check a task's options once and build it."""
    _check_function(function)
    name = function.__name__ if name is None else name
    run_parameter = find_run_parameter(function)
    _check_name(name)
    if schedule is not None:
        _check_callable_alone(function, run_parameter)
    _check_option("on_lost", on_lost, '"rerun" or "skip"', ok=on_lost in get_args(OnLost))
    _check_option("missed", missed, '"once" or "skip"', ok=missed in get_args(Missed))
    if schedule is None:
        given = None if missed == "once" else missed
        _refuse_alone(first_run=first_run, missed=given, grace=grace)
    _check_option(
        "grace", grace, 'it with missed="skip" only', ok=grace is None or missed == "skip"
    )
    _check_option("enabled", enabled, "True or False", ok=isinstance(enabled, bool))
    _check_option("retry", retry, "a Retry(…)", ok=isinstance(retry, Retry))
    for option, text in (("label", label), ("explanation", explanation)):
        _check_option(option, text, "a text", ok=text is None or isinstance(text, str))
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
        missed=missed,
        grace=_optional(grace, "grace", timedelta(0)),
        only_on=_only_on(only_on),
        enqueuer=enqueuer,
    )


def _check_option(name: str, value: object, accepted: str, *, ok: bool) -> None:
    if not ok:
        message = f"{name}={shown(value)}: pass {accepted}"
        raise ConfigurationError(message)


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


def _only_on(value: OnlyOn) -> tuple[Trigger, ...] | None:
    if value is None:
        return None
    given: tuple[object, ...] = ()
    if isinstance(value, str):
        given = (value,)
    elif isinstance(value, Iterable):
        given = tuple(value)
    ok = bool(given) and all(isinstance(one, str) and one in TRIGGERS for one in given)
    _check_option("only_on", value, f"one or more of {', '.join(TRIGGERS)}", ok=ok)
    return tuple(trigger for trigger in TRIGGERS if trigger in given)


def _optional(value: Duration | None, what: str, least: timedelta) -> timedelta | None:
    return None if value is None else to_duration(value, what=what, least=least)


def _check_function(function: object) -> None:
    if not callable(function) or not hasattr(function, "__name__"):
        message = f"{shown(function)} is not a function; cron.task decorates functions"
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
            f"task name {shown(name)} is not accepted; pass 1 to {NAME_LENGTH} printable "
            "characters without blanks at either end"
        )
        raise ConfigurationError(message)


def _check_callable_alone(function: Callable[..., Any], run_parameter: str | None) -> None:
    """Refuse a scheduled function that has a parameter without a value."""
    for parameter in _parameters(function):
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
    """Find the parameter that is annotated Run, by the class or as a text."""
    for parameter in _parameters(function):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue  # cannot be filled in by its name
        annotation = parameter.annotation
        if annotation is Run:
            return parameter.name
        if isinstance(annotation, str) and annotation.strip("\"' ").split(".")[-1] == Run.__name__:
            return parameter.name
    return None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return a function's parameters, their annotations evaluated where that is possible."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - evaluating annotations runs the app's own code
        # Perhaps a name was imported only for the type checker; then the text must do.
        try:
            signature = _signature_as_text(function)
        except ValueError:
            return []  # a builtin without a signature
    return list(signature.parameters.values())


def _signature_as_text(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)
