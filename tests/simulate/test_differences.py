"""docs/differences.json against the shared corpus: no difference that is not listed, none listed that is the same."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.engine.oracle import CORPUS, ROOT, play

LISTED: dict[str, str] = json.loads((ROOT / "docs" / "differences.json").read_text())
UNDECIDED: dict[str, str] = json.loads((ROOT / "tests" / "simulate" / "undecided.json").read_text())
"""Scenarios that come out otherwise, and not better: what is lost. To become fewer."""


def view(outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (found["clusterQueue"], {n: (p["count"], p["flavors"] or {}) for n, p in found["podSets"].items()})
        for name, found in outcome["admitted"].items()
    }


def victims(outcome: dict[str, Any]) -> Counter[str]:
    return Counter(eviction[0] for eviction in outcome["evictions"])


def differing() -> set[str]:
    found = set()
    for path in sorted(CORPUS.rglob("*.json")):
        scenario = json.loads(path.read_text())
        if not scenario.get("stable") or scenario.get("violations") or scenario.get("rightOutcome"):
            continue
        ours, kueues = play(scenario, Semantics.OWN), scenario["outcome"]
        if (view(ours), victims(ours)) != (view(kueues), victims(kueues)):
            found.add("/".join(path.parts[-2:]))
    return found


@pytest.mark.skipif(not CORPUS.exists(), reason="the oracle corpus is not part of the repository")
def test_every_difference_from_kueue_is_listed_and_every_listed_one_is_a_difference():
    found = differing()
    assert sorted(found - LISTED.keys() - UNDECIDED.keys()) == [], "not listed"
    assert sorted((LISTED.keys() | UNDECIDED.keys()) - found) == [], "comes out as in Kueue"


def test_every_reason_says_something_of_its_own():
    assert not LISTED.keys() & UNDECIDED.keys()
    assert all(len(reason) > 20 and reason.endswith(".") for reason in LISTED.values())
