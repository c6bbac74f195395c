"""`simulate`: scenario files in, outcomes out. Needs neither server nor database."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from queue_manager.cli.options import ScenarioView
from queue_manager.simulate.files import Played, find, play_all
from queue_manager.simulate.outcome import outcome
from queue_manager.simulate.semantics import Semantics

WIDTH = 120
"""Of a table that does not go to a terminal."""


def run_simulate(paths: Sequence[str], semantics: str, view: ScenarioView) -> bool:
    """Plays the scenarios and prints what came of them; says whether all could be played."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal can't show must not end the run
    given = [Path(path) for path in paths]
    files = find(given)
    played = play_all(files, Semantics(semantics))
    if view is ScenarioView.TABLE:
        return _print_tables(played)
    return _print_json(played, single=files == given and len(files) == 1)


def _print_json(all_played: Iterable[Played], single: bool) -> bool:
    good = True
    for played in all_played:
        if played.result is not None and single:
            print(_json(outcome(played.result), indent=2))
        else:
            print(_json({"file": str(played.path), **_data(played)}), flush=True)
        good = good and played.result is not None
    return good


def _json(data: Any, indent: int | None = None) -> str:
    """Characters as they are where the output can hold them, else as JSON's own escapes."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return json.dumps(data, indent=indent, ensure_ascii=encoding != "utf8")


def _data(played: Played) -> dict[str, Any]:
    return {"error": played.error} if played.result is None else outcome(played.result)


def _print_tables(all_played: Iterable[Played]) -> bool:
    from rich.console import Console

    from queue_manager.simulate.table import print_error, print_result

    console = Console(width=shutil.get_terminal_size((WIDTH, 24)).columns, highlight=False, soft_wrap=False)
    good = True
    for number, played in enumerate(all_played):
        if number:
            console.print()
        if played.result is None:
            print_error(console, str(played.path), played.error)
        else:
            print_result(console, played.result)
        good = good and played.result is not None
    return good
