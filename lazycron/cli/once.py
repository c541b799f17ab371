"""The verbs about once keys: list them, and finish or release one whose run was cut off."""

import dataclasses

import click

from lazycron.cli.failures import Failed
from lazycron.cli.options import json_option
from lazycron.cli.output import as_json, cell, say, seen_from, table
from lazycron.cli.session import Session, pass_session
from lazycron.model.once import OnceKey

HEADINGS = ("key", "task", "registered", "finished", "refused")

key_argument = click.argument("key")


@click.command("once-keys")
@click.option("--all", "all_", is_flag=True, help="Those whose effect was finished, too.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option
@pass_session
def once_keys(session: Session, *, all_: bool, limit: int, json_: bool) -> None:
    """List once keys whose effect was begun and not finished, the oldest first."""
    cron = session.cron
    found = cron.once_keys(unfinished=not all_, limit=limit)
    if json_:
        as_json([dataclasses.asdict(one) for one in found])
    elif found:
        now = cron.settings.clock.now()
        rows = [
            [
                one.key,
                cell(one.task),
                seen_from(now, one.created_at),
                _end(one),
                str(one.refused),
            ]
            for one in found
        ]
        table(HEADINGS, rows)
    else:
        say("No once keys." if all_ else "No unfinished once keys.")


def _end(one: OnceKey) -> str:
    if one.finished_at is not None:
        return "yes"
    return "no, its run was lost" if one.lost else "no"


@click.command("finish-once")
@key_argument
@pass_session
def finish_once(session: Session, key: str) -> None:
    """Note that the effect of an unfinished key was done: it stays refused."""
    if not session.cron.finish_once(key):
        raise _unknown(key)
    session.acted("finish-once", None, key)
    say(f"{key} is finished: its effect counts as done.")


@click.command("release-once")
@key_argument
@pass_session
def release_once(session: Session, key: str) -> None:
    """Delete an unfinished key: the next caller does its effect.

    If the effect was done after all, or is under way, it is done twice.
    """
    if not session.cron.release_once(key):
        raise _unknown(key)
    session.acted("release-once", None, key)
    say(f"{key} is released: the next caller does its effect.")


def _unknown(key: str) -> Failed:
    message = f"no unfinished once key is named {key!r}; `lazycron once-keys --all` lists all"
    return Failed(message)


VERBS = (once_keys, finish_once, release_once)
