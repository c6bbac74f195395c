"""Printing: tables that fit the terminal, JSON, YAML; colours and bars only on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from queue_manager.config.human import clean

GAP = "  "
LEAST = 16


class Format(StrEnum):
    """Value of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(data: Any, form: Format) -> None:
    """Data as JSON or YAML."""
    if form is Format.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        yaml.safe_dump(data, sys.stdout, sort_keys=False, allow_unicode=True, width=120)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), give_way: str = ""
) -> None:
    """A table. On a terminal the column `give_way` is cut to make the rest fit; elsewhere nothing is cut."""
    terminal = sys.stdout.isatty()
    cells = [list(columns), *([clean(value) for value in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if terminal:
        _fit(widths, shutil.get_terminal_size().columns, columns.index(give_way) if give_way else len(columns) - 1)
    sides = [name in frozenset(right) for name in columns]
    bold = terminal and not os.environ.get("NO_COLOR")
    for number, row in enumerate(cells):
        padded = (_pad(*each) for each in zip(row, widths, sides, strict=True))
        line = GAP.join(padded).rstrip()
        print(f"\x1b[1m{line}\x1b[0m" if bold and number == 0 else line)


def _fit(widths: list[int], total: int, give_way: int) -> None:
    """Makes the widths fit: first the column that gives way, then whichever is widest."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - total
    for least, candidates in ((LEAST, [give_way]), (3, range(len(widths)))):
        while over > 0:
            widest = max(candidates, key=lambda index: widths[index])
            cut = min(over, widths[widest] - least, max(1, over // 4))
            if cut <= 0:
                break
            widths[widest] -= cut
            over -= cut


def _width(text: str) -> int:
    # East Asian wide characters take two places; combining ones none.
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _pad(text: str, width: int, right: bool) -> str:
    if _width(text) > width:
        while text and _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    blank = " " * (width - _width(text))
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
    text = ": ".join(
        part for part in (place, what, str(finding.get("field", "")), str(finding.get("message", ""))) if part
    )
    return f"{text} ({finding['hint']})" if finding.get("hint") else text
