"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least `percent` of all do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Line:
    """One measured thing. `wanted` is the figure of the issue, `ratio` that to the calibration; "" where there is
    none."""

    what: str
    value: str
    wanted: str = ""
    ratio: str = ""


@dataclass(slots=True)
class Report:
    """Everything one figure printed."""

    title: str
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def times(self, what: str, seconds: Sequence[float], wanted: str = "") -> None:
        """Adds a distribution of times."""
        if not seconds:
            self.lines.append(Line(what, "no samples", wanted))
            return
        parts = [f"p{p} {1000 * percentile(seconds, p):.1f}" for p in (50, 95, 99)]
        self.lines.append(
            Line(what, f"{' / '.join(parts)} / max {1000 * max(seconds):.1f} ms (n={len(seconds)})", wanted)
        )

    def value(self, what: str, value: str, wanted: str = "") -> None:
        """Adds a single value."""
        self.lines.append(Line(what, value, wanted))

    def note(self, text: str) -> None:
        """Adds a sentence."""
        self.notes.append(text)

    def text(self) -> str:
        """The report for a terminal."""
        width = max((len(line.what) for line in self.lines), default=0)
        rows = [f"  {line.what:<{width}}  {line.value}{_extras(line)}" for line in self.lines]
        return "\n".join([f"== {self.title}", *rows, *(f"  - {note}" for note in self.notes), ""])


def _extras(line: Line) -> str:
    wanted = f"   [wanted: {line.wanted}]" if line.wanted else ""
    return wanted + (f"   {line.ratio}" if line.ratio else "")
