"""What happens around the store's writes, so that a test kit can play what befalls a process."""

from lazycron.model.settle import Settlement


class Probe:
    """Lets everything happen; a kit's own raises in between, or changes what is recorded."""

    # Whether the process lives: a dead one gives no once key back.
    is_alive = True

    def recording(self, settlement: Settlement) -> Settlement:
        """Return what is recorded in place of this settlement, just before it is."""
        return settlement

    def checkpointed(self) -> None:
        """Hear that a checkpoint is stored."""
