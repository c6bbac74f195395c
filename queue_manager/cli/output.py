"""Printing: tables that fit the terminal, JSON, YAML, names; colours only on a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.cells import cell_len

from queue_manager.cli.errors import CommandError
from queue_manager.config.human import clean

GAP = "  "
LEAST = 16


class Format(StrEnum):
    """Value of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Data(StrEnum):
    """Value of `-o` where there is neither a table nor a name."""

    JSON = "json"
    YAML = "yaml"


STATE_COLOURS: Mapping[str, str] = {
    "running": "32",
    "starting": "36",
    "reserved": "36",
    "waiting": "33",
    "held": "35",
    "draining": "31",
    "failed": "31",
    "finished": "2",
    "deactivated": "2",
}
"""SGR codes of the states of a workload; a cell that is one of these words has its colour."""


def print_data(data: Any, form: Format, names: Iterable[str] | None = None) -> None:
    """Data as JSON or YAML, or the names of what it holds, one a line."""
    if form is Format.NAME:
        if names is None:
            raise CommandError("this has no names to print", "choose -o table, json or yaml")
        for name in names:
            print(clean(name))
    elif form is Format.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        yaml.safe_dump(data, sys.stdout, sort_keys=False, allow_unicode=True, width=120)


def colours(stream: Any = None) -> bool:
    """Whether to print in colours: on a terminal that has them, and not with NO_COLOR (https://no-color.org)."""
    stream = stream or sys.stdout
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns of the terminal; 0 where the output is none, and nothing has to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings. Where they don't fit, the column `give_way` is cut first, then whichever is widest; columns
    of `right` are numbers. `empty` is said where there is no row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    right: Sequence[str] = ()
    give_way: str = ""
    empty: str = ""

    def lines(self, width: int = 0, coloured: bool = False) -> list[str]:
        """Text of at most `width` columns, 0 for as wide as it gets. The first line is the heading."""
        cells = [list(self.columns), *([clean(value) for value in row] for row in self.rows)]
        widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
        if width:
            _fit(widths, width, self.columns.index(self.give_way) if self.give_way else len(widths) - 1)
        sides = [name in self.right for name in self.columns]
        return [
            self._line(row, widths, sides, bold=coloured and number == 0, coloured=coloured)
            for number, row in enumerate(cells)
        ]

    @staticmethod
    def _line(row: Sequence[str], widths: Sequence[int], sides: Sequence[bool], *, bold: bool, coloured: bool) -> str:
        padded = [_pad(*each) for each in zip(row, widths, sides, strict=False)]
        padded[-1] = padded[-1].rstrip()
        if bold:
            return f"\x1b[1m{GAP.join(padded).rstrip()}\x1b[0m"
        if coloured:
            codes = [STATE_COLOURS.get(cell) for cell in row]
            padded = [f"\x1b[{c}m{cell}\x1b[0m" if c else cell for c, cell in zip(codes, padded, strict=False)]
        return GAP.join(padded).rstrip()


@dataclass(frozen=True, slots=True)
class Text:
    """Lines for people; on a terminal long ones are wrapped, each by its own indent."""

    content: Sequence[str]
    empty: str = ""

    def lines(self, width: int = 0, coloured: bool = False) -> list[str]:
        """Text of at most `width` columns, 0 for as wide as it gets."""
        return [part for line in self.content for part in wrapped(clean(line).rstrip(), width)]


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), give_way: str = ""
) -> None:
    """A table. On a terminal the column `give_way` is cut to make the rest fit; elsewhere nothing is cut."""
    for line in Table(columns, list(rows), tuple(right), give_way).lines(terminal_width(), colours()):
        print(line)


def wrapped(line: str, width: int) -> list[str]:
    """A line in parts of at most `width` columns, broken between words; what follows is indented by two more."""
    if not width or text_width(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    parts, part = [], ""
    for word in re.findall(r" *[^ ]+", line):
        if part.strip() and text_width(part + word) > width:
            parts.append(part)
            part = indent + word.lstrip()
        else:
            part += word
    return [*parts, part]


def _fit(widths: list[int], total: int, give_way: int) -> None:
    """Makes the widths fit: first the column that gives way, then whichever is widest; else columns go from the end."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - total
    for least, candidates in ((LEAST, [give_way]), (3, range(len(widths)))):
        while over > 0:
            widest = max(candidates, key=lambda index: widths[index])
            less = min(over, widths[widest] - least, max(1, over // 4))
            if less <= 0:
                break
            widths[widest] -= less
            over -= less
    # Too narrow for three places a column: the last ones are not shown at all.
    while over > 0 and len(widths) > 1:
        over -= widths.pop() + len(GAP)


def text_width(text: str) -> int:
    """Columns that a text takes on a terminal: East Asian wide characters two, combining ones none."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns; where something is left out it ends in an ellipsis."""
    if text_width(text) <= width:
        return text
    taken, used = [], 0
    for character in text:
        used += text_width(character)
        if used > width - 1:
            break
        taken.append(character)
    return "".join(taken) + "…" if width > 0 else ""


def _pad(text: str, width: int, right: bool) -> str:
    text = cut(text, width)
    blank = " " * (width - text_width(text))
    return blank + text if right else text + blank


def print_error(message: str, hint: str = "", details: Iterable[str] = ()) -> None:
    """To stderr: the details one a line, what went wrong, what to do."""
    for detail in details:
        print(clean(detail), file=sys.stderr)
    print(f"error: {clean(message)}", file=sys.stderr)
    if hint:
        print(f"  {clean(hint)}", file=sys.stderr)


def finding_text(finding: Mapping[str, Any]) -> str:
    """One line of a finding of the API: place, object, field, message and hint."""
    place = str(finding.get("file", ""))
    if finding.get("line"):
        place = f"{place}:{finding['line']}" if place else f"line {finding['line']}"
    what = f"{finding.get('kind', '')} {finding.get('name', '')}".strip()
    field = str(finding.get("field", ""))
    for part_of_request in ("body.", "query.", "path."):  # who types a command knows of no request
        field = field.removeprefix(part_of_request)
    text = ": ".join(part for part in (place, what, field, str(finding.get("message", ""))) if part)
    return f"{text} ({finding['hint']})" if finding.get("hint") else text
