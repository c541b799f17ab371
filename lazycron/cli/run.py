"""The verb that runs tasks, once or in a loop."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from lazycron.app import LazyCron, parts_of
from lazycron.cli.failures import SIGNALLED, WRONG, Failed
from lazycron.cli.loop import Loop
from lazycron.cli.options import MAYBE_NAME, DurationType, json_option
from lazycron.cli.output import as_json, at, say, table, took
from lazycron.cli.progress import watched
from lazycron.cli.session import Session, pass_session
from lazycron.cli.signals import Signals
from lazycron.durations import Duration
from lazycron.errors import NotInstalledError
from lazycron.model.report import Budget, Decision, RunResult, TickReport, Trigger
from lazycron.model.settle import Status
from lazycron.tick.tick import Door

# A loop's tick must end now and then: the heartbeat is written between ticks.
LONGEST_TICK = 20


@click.command()
@MAYBE_NAME
@click.option("--loop", is_flag=True, help="Keep running what becomes due until a signal.")
@click.option("--budget", type=click.IntRange(min=1), help="At most this many runs in one tick.")
@click.option("--seconds", type=DurationType(), help="Begin no further run after this duration.")
@json_option
@pass_session
def run(
    session: Session,
    name: str | None,
    budget: int | None,
    seconds: Duration | None,
    *,
    loop: bool,
    json_: bool,
) -> None:
    """Run everything that is due; with NAME, run that task now, due or not.

    A task without a schedule runs its oldest waiting job.

    SIGINT ends the current run, which is recorded as failed. SIGTERM lets it finish. With --loop
    both let it finish. A second signal ends it at once.
    """
    if name is not None and (loop or budget is not None or seconds is not None):
        message = "NAME runs one task once; leave out --loop, --budget and --seconds"
        raise click.UsageError(message)
    cron = session.cron
    if loop:
        _loop(cron, budget, seconds, json_=json_)
        return
    with _signals(cron, at_once=True) as signals:
        door = _door(signals, "cli", Budget(budget, seconds))
        try:
            if name is not None:
                _run_now(cron, name, door, json_=json_)
            else:
                _run_due(cron, door, json_=json_)
        except (KeyboardInterrupt, SystemExit):
            _end(signals)
            raise
        if signals.first is not None:
            raise click.exceptions.Exit(SIGNALLED + signals.first)


def _loop(cron: LazyCron, tasks: int | None, seconds: Duration | None, *, json_: bool) -> None:
    if not cron.settings.is_on:
        message = "lazycron is off (LAZYCRON=off or enabled=False), so the loop does not run"
        raise Failed(message)
    own = cron.settings.budget
    longest = LONGEST_TICK if own.seconds is None else own.seconds
    budget = Budget(tasks or own.tasks, longest if seconds is None else seconds)
    with _signals(cron, at_once=False) as signals:
        show = _show_as_json if json_ else _show_runs
        try:
            Loop(cron, _door(signals, "loop", budget), show).run()
        except (KeyboardInterrupt, SystemExit):
            _end(signals)
            raise


def _signals(cron: LazyCron, *, at_once: bool) -> Signals:
    return Signals(parts_of(cron).runner.activity, at_once=at_once)


def _door(signals: Signals, trigger: Trigger, budget: Budget) -> Door:
    return Door(trigger=trigger, budget=budget, interrupted=signals.has_interrupted)


def _end(signals: Signals) -> None:
    if signals.ended_by is not None:
        message = "interrupted; `lazycron history` shows the run that was under way"
        raise Failed(message, SIGNALLED + signals.ended_by) from None


def _run_now(cron: LazyCron, name: str, door: Door, *, json_: bool) -> None:
    with watched(silent=json_) as progressed:
        result = parts_of(cron).runner.run_now(name, replace(door, progressed=progressed))
    if result is None:
        if json_:
            as_json(None)
        raise _not_run(cron, name)
    if json_:
        as_json(TickReport(runs=[result]).as_json()["runs"][0])
    else:
        _show_table([result], {})
    _judge([result])


def _run_due(cron: LazyCron, door: Door, *, json_: bool) -> None:
    report = parts_of(cron).runner.run_due(door)
    facts = parts_of(cron).facts
    if not facts.installed and not report.runs:
        raise NotInstalledError
    if json_:
        as_json(report.as_json())
    else:
        decided = report.decisions
        others = {name: d for name, d in decided.items() if d.verdict != "ran"}
        _show_table(report.runs, others)
        say(_summary(report))
    if facts.outage is not None:
        message = f"the database could not be reached any more ({facts.outage.error})"
        raise Failed(message)
    _judge(report.runs)


def _judge(runs: Sequence[RunResult]) -> None:
    if any(run.status == Status.FAILED for run in runs):
        raise click.exceptions.Exit(WRONG)


def _not_run(cron: LazyCron, name: str) -> Failed:
    store = parts_of(cron).store
    held = store.claim_of(name)
    if held is None or held.by == store.by:
        return Failed(f"the run of {name} could not be recorded; `lazycron log` shows it")
    started = at(held.claim.started_at)
    return Failed(f"{name} is running already, since {started} in {held.by}")


def _show_table(runs: Sequence[RunResult], others: Mapping[str, Decision]) -> None:
    rows = [[run.task, run.status, took(run.ms), run.message] for run in runs]
    rows += [[name, other.verdict, took(None), other.reason] for name, other in others.items()]
    if rows:
        table(["task", "status", "took", "message"], rows)


def _summary(report: TickReport) -> str:
    failed = sum(run.status == Status.FAILED for run in report.runs)
    count = f"{len(report.runs)} run{'' if len(report.runs) == 1 else 's'}"
    without = sum(one.verdict == "unbound" for one in report.decisions.values())
    unbound = f", {without} due without code here" if without else ""
    stopped = "" if report.stopped_by == "done" else f", stopped by {report.stopped_by}"
    following = "nothing is due next" if report.next_due is None else f"next {at(report.next_due)}"
    return f"{count}, {failed} failed{unbound}, in {report.seconds:.1f} s{stopped}; {following}."


def _show_runs(report: TickReport, ended_at: str) -> None:
    for run in report.runs:
        parts = (f"[{ended_at}] {run.task}", run.status, took(run.ms), run.message)
        say("  ".join(parts))


def _show_as_json(report: TickReport, ended_at: str) -> None:
    if report.runs:
        as_json({"at": ended_at, **report.as_json()}, indent=None)


VERBS = (run,)
