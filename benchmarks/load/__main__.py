"""`python -m benchmarks.load [LOAD ...] [--variant V] [--part N]`: plays the loads and prints what they cost."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.load.loads import LOADS
from benchmarks.load.runner import VARIANTS, run
from benchmarks.machine import busy_cores, spin
from benchmarks.world import NotBuilt


def main() -> int:
    """Runs the wanted loads one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"these alone, of {', '.join(LOADS)}")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="these alone; repeatable")
    parser.add_argument("--part", type=int, default=1, help="one N-th of cohorts and Jobs: to try it, not to compare")
    parser.add_argument("--keep", type=Path, help="an existing folder that logs and data are left in")
    options = parser.parse_args()
    unknown = [name for name in options.loads if name not in LOADS]
    if unknown:
        parser.error(f"no load {unknown[0]}; there are {', '.join(LOADS)}")
    print(f"{os.cpu_count()} cores, {busy_cores():.2f} at work for others, calibration {spin():.1f} ms\n", flush=True)
    try:
        for name in options.loads or LOADS:
            for report, _ in run([name], options.variant or list(VARIANTS), options.part, options.keep):
                print(report.text(), flush=True)
    except NotBuilt as problem:
        print(f"not measured: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
