"""What there is: plain values and pure rules; no I/O."""
