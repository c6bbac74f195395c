"""Printing: tables that fit the terminal, JSON, YAML; colours and bars only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """Value of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def clean(value: object) -> str:
    """Text without control characters: a name must not be able to drive the terminal."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in str(value))


def print_data(data: Any, form: Format) -> None:
    """Data as JSON or YAML."""
    if form is Format.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        yaml.safe_dump(data, sys.stdout, sort_keys=False, allow_unicode=True, width=120)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), give_way: Iterable[str] = ()
) -> None:
    """A table. On a terminal the columns of `give_way` are cut to make the rest fit; elsewhere nothing is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 10_000, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        may_be_cut = name in give_way
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if may_be_cut and terminal else None,
            min_width=12 if may_be_cut else None,
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else clean(cell) for cell in map(_markup_off, row)))
    for line in _lines(console, table):
        console.print(line)


def _markup_off(cell: object) -> object:
    from rich.text import Text

    return cell if isinstance(cell, Text) else Text(clean(cell))


def _lines(console: Any, table: Any) -> Iterable[Any]:
    # Trailing blanks of a wide table would fill the pipe; rich pads every line.
    if console.is_terminal:
        yield table
        return
    from rich.text import Text

    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        yield Text(line.rstrip())


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
