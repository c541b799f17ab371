"""Where requests come in: plain values, no protocol."""
