"""The command `lazycron` and its verbs."""

import click

from lazycron.cli import jobs, once, operator, read, run
from lazycron.cli.session import Session, Verbs

SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=Verbs, context_settings=SETTINGS)
@click.option(
    "--app",
    envvar="LAZYCRON_APP",
    metavar="MODULE:ATTRIBUTE",
    help="Where the LazyCron is, or a function that makes one; MODULE alone means MODULE:cron.",
)
@click.option(
    "--traceback",
    is_flag=True,
    envvar="LAZYCRON_DEBUG",
    help="Let errors show where they came from.",
)
@click.version_option(package_name="lazycron", message="%(prog)s %(version)s")
@click.pass_context
def lazycron(context: click.Context, *, app: str | None, traceback: bool) -> None:
    """Look at an app's scheduled tasks, run them, and change when they run.

    Exit codes: 0, all is well; 1, a run failed or something is wrong; 2, wrong usage; 130 and 143,
    ended by a signal.
    """
    context.obj = Session(app, traceback)
    context.call_on_close(context.obj.close)


for verb in (*run.VERBS, *read.VERBS, *jobs.VERBS, *once.VERBS, *operator.VERBS):
    lazycron.add_command(verb)
