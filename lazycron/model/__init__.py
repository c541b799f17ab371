"""Plain values and pure rules; no I/O."""
