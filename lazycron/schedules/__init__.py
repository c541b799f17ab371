"""When something is due: pure time, no I/O."""
