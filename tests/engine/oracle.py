"""The shared corpus of what the real Kueue scheduler decided, where that folder is at hand."""

from __future__ import annotations

import pathlib
from typing import Any

from queue_manager.simulate.outcome import outcome
from queue_manager.simulate.run import Simulation
from queue_manager.simulate.scenario import read_scenario
from queue_manager.simulate.semantics import Semantics

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = next(
    (found for parent in ROOT.parents if (found := parent / "shared" / "oracle").is_dir()), ROOT / "shared" / "oracle"
)


def play(content: Any, semantics: Semantics) -> dict[str, Any]:
    """The outcome of a decoded scenario."""
    return outcome(Simulation(read_scenario(content, semantics)).run())
