"""Figures of the product on this machine, printed and never asserted (docs/benchmarks.md): `python -m benchmarks`."""
