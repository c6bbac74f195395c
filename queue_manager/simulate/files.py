"""Scenario files and folders of them, one after another in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from queue_manager.simulate.problem import ScenarioError
from queue_manager.simulate.run import Result, Simulation
from queue_manager.simulate.scenario import read_file
from queue_manager.simulate.semantics import Semantics

SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Played:
    """One file: its result, or what is wrong with it."""

    path: Path
    result: Result | None = None
    error: str = ""


def find(paths: Iterable[Path]) -> list[Path]:
    """The files to play, folders searched at any depth; a folder without one stands for itself, to be told of."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(each for each in path.rglob(f"*{SUFFIX}") if each.is_file()) if path.is_dir() else []
        found += inside or [path]
    return found


def play_all(paths: Iterable[Path], semantics: Semantics) -> Iterator[Played]:
    """Plays file after file; one that cannot be played is told of and does not keep the others from being played."""
    for path in paths:
        try:
            yield Played(path, play(path, semantics))
        except ScenarioError as error:
            yield Played(path, error=str(error))
        except Exception as error:  # a defect in one scenario must not cost the results of a thousand others
            yield Played(path, error=f"internal error: {type(error).__name__}: {error}")


def play(path: Path, semantics: Semantics) -> Result:
    """Plays one file. Raises ScenarioError."""
    if path.is_dir():
        raise ScenarioError(f"no {SUFFIX} file in this folder")
    return Simulation(read_file(path, semantics)).run()
