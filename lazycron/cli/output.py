"""What verbs print: tables for a terminal, aligned columns for a pipe, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import IO, Any

import click

from lazycron import texts
from lazycron.durations import roughly
from lazycron.texts import visible, visible_json

NOTHING = "-"
BETWEEN = "  "

# What stands in a table: a line, or several.
Cell = str | tuple[str, ...]


def as_json(value: Any, *, indent: int | None = 2) -> None:  # noqa: ANN401 - JSON's own terms
    """Print a value as JSON; moments become ISO texts in UTC."""
    click.echo(visible_json(in_json(value, indent=indent)))


def in_json(value: Any, *, indent: int | None = None) -> str:  # noqa: ANN401 - as above
    """Write a value as JSON, what JSON has no word for as text."""
    return json.dumps(value, indent=indent, default=_to_text, ensure_ascii=False)


def _to_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def say(text: str, *, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print a line, whose texts are shown and not obeyed by a terminal."""
    click.echo(visible(text), err=err, file=file)


def lines_of(one: Cell) -> tuple[str, ...]:
    """Return a cell's lines."""
    return (one,) if isinstance(one, str) else one


def on_terminal() -> bool:
    """Tell whether the output goes to a terminal."""
    return sys.stdout.isatty()


def table(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]], styles: Mapping[str, str] | None = None
) -> None:
    """Print rows in columns: a drawn table on a terminal, aligned lines elsewhere.

    A cell of several lines is a tuple; only a drawn table has room for it. There a line that is one
    of the words of `styles` is shown in colour.
    """
    clean = [["\n".join(map(visible, lines_of(one))) for one in row] for row in rows]
    if on_terminal():
        _drawn(headings, clean, styles or {})
    else:
        _aligned(headings, clean)


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(BETWEEN.join(cells).rstrip())


def _drawn(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        # As Text: a message's brackets are no markup.
        lines = ([Text(line, styles.get(line, "")) for line in cell.split("\n")] for cell in row)
        drawn.add_row(*(Text("\n").join(cell) for cell in lines))
    Console().print(drawn)


def cell(value: object) -> str:
    """Write a value into a table; a dash where there is none."""
    return NOTHING if value is None or value == "" else str(value)


def at(moment: datetime | None) -> str:
    """Write a moment in UTC, to the second."""
    return NOTHING if moment is None else texts.at(moment)


def seen_from(now: datetime, moment: datetime | None) -> str:
    """Write a moment as it is seen from now, and in UTC: `in 5 minutes (2026-01-01 ...)`."""
    words, *rest = stacked_from(now, moment)
    return " ".join([words, *(f"({one})" for one in rest)])


def stacked_from(now: datetime, moment: datetime | None) -> tuple[str, ...]:
    """Write what `seen_from` writes in two lines."""
    if moment is None:
        return (NOTHING,)
    if abs(moment - now).total_seconds() < 1:
        words = "now"
    elif moment > now:
        words = f"in {roughly(moment - now)}"
    else:
        words = f"{roughly(now - moment)} ago"
    return words, at(moment)


def took(ms: int | None) -> str:
    """Write a duration in milliseconds."""
    return NOTHING if ms is None else f"{ms} ms"
