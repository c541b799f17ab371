"""Functions annotated with names that are there for the type checker only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lazycron
    from lazycron.model.run import Run


def bare(run: Run) -> str:
    """Take a run."""
    return run.task


async def through_a_module(run: lazycron.Run) -> str:
    """Take a run."""
    return run.task
