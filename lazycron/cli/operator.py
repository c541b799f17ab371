"""The verbs that change something: each is noted in the database with who did it."""

import click

from lazycron.app import parts_of
from lazycron.cli.failures import Failed
from lazycron.cli.options import MAYBE_NAME, DurationType, json_option, name_argument
from lazycron.cli.output import as_json, say, seen_from
from lazycron.cli.session import Session, pass_session
from lazycron.durations import Duration, in_words, to_duration
from lazycron.errors import NotInstalledError
from lazycron.verbs.operator import LONGEST_OVERRIDE, SHORTEST_OVERRIDE

SWITCH = click.Choice(["on", "off"])


@click.command()
@name_argument
@pass_session
def enable(session: Session, name: str) -> None:
    """Let a task run again."""
    session.cron.enable(name)
    session.acted("enable", name)
    say(f"{name} is enabled.")


@click.command()
@name_argument
@pass_session
def disable(session: Session, name: str) -> None:
    """Keep a task from running; a run under way is finished."""
    session.cron.disable(name)
    session.acted("disable", name)
    say(f"{name} is disabled.")


@click.command("set-interval")
@name_argument
@click.argument("duration", type=DurationType(least=SHORTEST_OVERRIDE, most=LONGEST_OVERRIDE))
@pass_session
def set_interval(session: Session, name: str, duration: Duration) -> None:
    """Run a task at another interval, from 60 s to 30 d, until `reset`."""
    session.cron.set_interval(name, duration)
    words = in_words(to_duration(duration))
    session.acted("set-interval", name, words)
    say(f"{name} runs every {words} now.")


@click.command()
@name_argument
@pass_session
def reset(session: Session, name: str) -> None:
    """Remove the interval of set-interval: the code's schedule counts again."""
    session.cron.reset_schedule(name)
    session.acted("reset", name)
    say(f"{name} runs by its code's schedule.")


@click.command()
@MAYBE_NAME
@click.option("--job", "job_id", type=click.IntRange(min=1), metavar="ID", help="Release this job.")
@click.option("--force", is_flag=True, help="Release it even if it renewed its lease lately.")
@pass_session
def release(session: Session, name: str | None, *, job_id: int | None, force: bool) -> None:
    """End the claim of a run that hangs or has died; the run is recorded as lost.

    NAME is a task with a schedule. For a job, pass --job ID.
    """
    if name is not None and job_id is None:
        what, released = name, session.cron.release(name, force=force)
    elif name is None and job_id is not None:
        what, released = f"job {job_id}", session.cron.release_job(job_id, force=force)
    else:
        message = "pass either a task's NAME or --job ID"
        raise click.UsageError(message)
    if not released:
        message = f"{what} is not running; there is nothing to release"
        raise Failed(message)
    detail = [] if job_id is None else [what]
    session.acted("release", name, ", ".join(detail + ["force"] * force))
    say(f"{what} is released; its run is recorded as lost.")


@click.command()
@name_argument
@pass_session
def forget(session: Session, name: str) -> None:
    """Delete the row of a task whose code is gone."""
    session.cron.forget(name)
    session.acted("forget", name)
    say(f"{name} is forgotten.")


@click.command()
@click.option("--traffic", type=SWITCH, help="Any request.")
@click.option("--admin", type=SWITCH, help="Requests on the app's own admin paths.")
@json_option
@pass_session
def triggers(session: Session, traffic: str | None, admin: str | None, *, json_: bool) -> None:
    """Show or set whether requests run tasks; the cron URL and this command always do."""
    cron = session.cron
    if not cron.sync():
        raise NotInstalledError
    if traffic is not None or admin is not None:
        cron.set_triggers(traffic=_is_on(traffic), admin=_is_on(admin))
        detail = f"traffic={traffic or 'as it was'} admin={admin or 'as it was'}"
        session.acted("triggers", None, detail)
    clock = cron.settings.clock
    # From the database: the state file may be a minute behind another host.
    state = parts_of(cron).refresh_state(settings=True)
    if json_:
        as_json({"traffic": state.traffic, "admin": state.admin, "loop_at": state.loop_at})
        return
    say(f"traffic  {_words(on=state.traffic)}")
    say(f"admin    {_words(on=state.admin)}")
    say(f"loop     {_loop(seen_from(clock.now(), state.loop_at))}")


def _is_on(word: str | None) -> bool | None:
    return None if word is None else word == "on"


def _words(*, on: bool) -> str:
    return "on" if on else "off"


def _loop(seen: str) -> str:
    return "none is running" if seen == "-" else f"last heard of {seen}"


@click.command()
@pass_session
def migrate(session: Session) -> None:
    """Create lazycron's tables, or update them to this version."""
    session.cron.migrate()
    session.acted("migrate")
    say("The tables are up to date.")


VERBS = (enable, disable, set_interval, reset, release, forget, triggers, migrate)
