"""The admission engine: pure decisions over (state, now). No I/O, no clock, no randomness, integers only."""
