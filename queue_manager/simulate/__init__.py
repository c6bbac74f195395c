"""Scenario files played on the engine: what would be admitted, evicted, and why the rest waits (docs/simulate.md)."""
