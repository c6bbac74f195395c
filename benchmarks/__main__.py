"""`python -m benchmarks [FIGURE ...] [--size small]`: measures and prints."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    beside,
    churn,
    configuration,
    decisions,
    domains,
    engine,
    gang,
    growth,
    idle,
    latency,
    pinned,
    placement,
    rest,
    start,
    usage,
    webhook,
)
from benchmarks.machine import busy_cores, spin
from benchmarks.report import Report
from benchmarks.world import NotBuilt

FIGURES: dict[str, Callable[[str, Path | None], list[Report]]] = {
    "engine": engine.run,
    "decisions": decisions.run,
    "growth": growth.run,
    "placement": placement.run,
    "domains": domains.run,
    "latency": latency.run,
    "gang": gang.run,
    "pinned": pinned.run,
    "churn": churn.run,
    "idle": idle.run,
    "configuration": configuration.run,
    "rest": rest.run,
    "usage": usage.run,
    "webhook": webhook.run,
    "beside": beside.run,
    "start": start.run,
}
BUSY = 0.2
"""Cores at work for others, above which a figure is spoilt."""


def main() -> int:
    """Runs the wanted figures one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"these alone, of {', '.join(FIGURES)}")
    parser.add_argument(
        "--size", choices=("full", "small"), default="full", help="small: to try it out, not to compare"
    )
    parser.add_argument("--keep", type=Path, help="an existing folder that logs and data are left in")
    options = parser.parse_args()
    unknown = [name for name in options.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {unknown[0]}; there are {', '.join(FIGURES)}")
    print(f"{os.cpu_count()} cores, size {options.size}; times are wall time\n", flush=True)
    for name in options.figures or FIGURES:
        others, before = busy_cores(), spin()
        try:
            reports = FIGURES[name](options.size, options.keep)
        except NotBuilt as problem:
            print(f"== {name}: not measured: {problem}\n", file=sys.stderr)
            return 1
        for report in reports:
            print(report.text(), flush=True)
        words = (
            f"calibration {before:.1f} ms before, {spin():.1f} ms after; {others:.2f} cores at work for others before"
        )
        print(f"  {words}{'; not comparable' if others > BUSY else ''}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
