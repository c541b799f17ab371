"""What `check` finds, as a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MOST_NAMES = 10

Severity = Literal["warning", "error"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `check` found: a short name, a sentence that says what to do, and how grave it is.

    `severity` is "error" where something does not work that was asked for, and "warning" where
    nothing has to be done at once; `lazycron check` fails for errors only.
    """

    name: str
    text: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return self.text


def some(names: Sequence[str]) -> str:
    """List names, the first ten where there are many."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
