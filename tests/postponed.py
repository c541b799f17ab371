"""Functions whose annotations are texts, by names that are there when somebody reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazycron  # noqa: TC001 - read by lazycron, at run time
from lazycron.model.run import Run  # noqa: TC001
from lazycron.model.run import Run as Handed  # noqa: TC001

if TYPE_CHECKING:
    from decimal import Decimal as Missing


def by_name(first: int = 0, other: Handed | None = None, *, run: Run) -> str:
    """Take a run."""
    return f"{run.task} {first} {other}"


def by_another_name(run: Handed) -> str:
    """Take a run."""
    return run.task


async def by_module(run: lazycron.Run) -> str:
    """Take a run."""
    return run.task


def with_a_missing_name(run: Run, other: Missing | None = None) -> Missing | None:
    """Take a run, and something that is not there when the annotations are read."""
    del run
    return other


def with_an_annotation_that_raises(run: Run, other: 1 / 0 = 1) -> str:  # type: ignore[valid-type]
    """Take a run, and something whose annotation cannot be evaluated."""
    return f"{run.task} {other}"
