"""Plays every file of tests/scenarios/engine."""

from __future__ import annotations

import pathlib

import pytest

from tests.engine.scenario import Run

FOLDER = pathlib.Path(__file__).parents[1] / "scenarios" / "engine"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_scenario(path: pathlib.Path) -> None:
    Run(path).play()
