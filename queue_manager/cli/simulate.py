"""`simulate`: scenario files in, outcomes out. Needs neither server nor database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from queue_manager.cli.output import Format, print_data
from queue_manager.simulate.files import Played, find, play_all
from queue_manager.simulate.outcome import outcome
from queue_manager.simulate.semantics import Semantics


def run_simulate(paths: Sequence[str], semantics: str) -> bool:
    """Plays the scenarios and prints what came of them; says whether all could be played."""
    given = [Path(path) for path in paths]
    files = find(given)
    single = files == given and len(files) == 1
    good = True
    for played in play_all(files, Semantics(semantics)):
        good = good and not played.error
        if single and not played.error:
            print_data(_data(played), Format.JSON)
        else:
            print(json.dumps({"file": str(played.path), **_data(played)}, ensure_ascii=False), flush=True)
    return good


def _data(played: Played) -> dict[str, Any]:
    return {"error": played.error} if played.result is None else outcome(played.result)
