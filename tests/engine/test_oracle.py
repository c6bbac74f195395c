"""Agreement with the real Kueue scheduler on the shared corpus, where that folder is at hand (see oracle.py)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.engine.oracle import CORPUS, play

AGREEMENT = dict.fromkeys(("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "C"), 100)
"""Least share of stable scenarios, in percent, that come out as in Kueue."""


def admitted(outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (found["clusterQueue"], {n: (p["count"], p["flavors"]) for n, p in found["podSets"].items()})
        for name, found in outcome["admitted"].items()
    }


@pytest.mark.skipif(not CORPUS.exists(), reason="the oracle corpus is not part of the repository")
@pytest.mark.parametrize(("family", "percent"), AGREEMENT.items())
def test_same_workloads_flavors_and_victims_as_kueue(family: str, percent: int) -> None:
    same = total = 0
    for path in sorted((CORPUS / family).glob("*.json")):
        scenario = json.loads(path.read_text())
        if not scenario["stable"] or scenario.get("violations") or scenario.get("rightOutcome"):
            continue
        found, wanted = play(scenario, Semantics.KUEUE), scenario["outcome"]
        total += 1
        victims = Counter(e[0] for e in found["evictions"]) == Counter(e[0] for e in wanted["evictions"])
        same += victims and admitted(found) == admitted(wanted)
    assert total
    assert 100 * same >= percent * total, f"{same} of {total}"
