"""`python -m benchmarks.engine_memory WAITING SHAPES`: bytes resident before, and the most ever with so many that
wait."""

from __future__ import annotations

import os
import sys

from benchmarks.engine_world import crowd
from benchmarks.machine import highest_resident, use_of


def main() -> int:
    """Runs in a process of its own, so that nothing else is counted."""
    before = use_of([os.getpid()]).resident
    engine, _, _ = crowd(int(sys.argv[1]), int(sys.argv[2]))
    engine.plan(3)
    print(before, highest_resident(os.getpid()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
