"""Job kinds: one module each. They turn job objects into pod sets and wishes (start, stop) into writes; no I/O, no quotas."""
