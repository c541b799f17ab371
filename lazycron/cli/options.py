"""Options that several verbs take."""

from datetime import timedelta
from typing import Any

import click

from lazycron.durations import LONGEST_DURATION, Duration, to_duration
from lazycron.errors import ScheduleError

json_option = click.option("--json", "json_", is_flag=True, help="Print JSON.")
name_argument = click.argument("name")
MAYBE_NAME = click.argument("name", required=False)


class DurationType(click.ParamType[Any]):
    """A duration as lazycron writes them: 90s, 15m, 1h30m, 2d, or a number of seconds."""

    name = "duration"

    def __init__(
        self, *, least: timedelta = timedelta(0), most: timedelta = LONGEST_DURATION
    ) -> None:
        self._least, self._most = least, most

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Duration:
        """Check a duration; a usage error names what is accepted."""
        given: Duration = value
        if isinstance(value, str):
            try:
                given = float(value)
            except ValueError:
                given = value
        try:
            to_duration(given, least=self._least, most=self._most)
        except ScheduleError as error:
            self.fail(str(error), param, ctx)
        return given
