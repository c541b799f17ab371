"""Hooks around the store's writes, by which a test kit plays the faults of a process."""

from lazycron.model.settle import Settlement


class Probe:
    """Changes nothing; a test kit's own probe raises, or changes what is recorded."""

    # Whether the process is alive: a dead one gives no once key back.
    is_alive = True

    def recording(self, settlement: Settlement) -> Settlement:
        """Return what is recorded in place of this settlement, just before it is."""
        return settlement

    def checkpointed(self) -> None:
        """Note that a checkpoint is stored."""
