"""Who uses whose quota: a table of small trees."""

from __future__ import annotations

import pytest

from api.usage.flows import Flow, QueueUse, compute_flows
from queue_manager.config.compiled import to_engine
from queue_manager.config.parse import parse_objects
from queue_manager.engine.configuration import Cell
from tests.api.world import GPU, document, group

CELL = Cell("f", GPU)


def flows(tree: dict[str, tuple[str, int]], used: dict[str, int], **more: dict[str, int]) -> dict[str, Flow]:
    """`tree` is name -> (parent, own quota); names in capitals are cohorts."""
    documents = [document("Flavor", "f", {})]
    for name, (parent, nominal) in tree.items():
        kind, link = ("Cohort", "parent") if name.isupper() else ("Queue", "cohort")
        spec = {link: parent.lower(), "resourceGroups": [group({"f": {GPU: nominal}})]}
        documents.append(document(kind, name.lower(), spec))
    result = parse_objects(documents)
    assert not result.errors
    draining, waiting = more.get("draining", {}), more.get("waiting", {})
    uses = {
        name: QueueUse({CELL: used.get(name, 0)}, {CELL: draining.get(name, 0)}, {GPU: waiting.get(name, 0)})
        for name in {*used, *draining, *waiting}
    }
    found = compute_flows(to_engine(result.objects), uses)
    return {name.upper() if kind == "Cohort" else name: cells[CELL] for (kind, name), cells in found.items()}


TWO = {"C": ("", 0), "a": ("C", 10), "b": ("C", 10)}


@pytest.mark.parametrize(
    ("tree", "used", "borrowed", "lent"),
    [
        (TWO, {"a": 4, "b": 10}, {}, {}),
        (TWO, {"a": 14}, {"a": 4}, {"b": 4}),
        # Over what the tree has (quota was cut): nobody can have lent the rest.
        (TWO, {"a": 30}, {"a": 20, "C": 10}, {"b": 10}),
        # The pool of the cohort gives first.
        ({**TWO, "C": ("", 3)}, {"a": 14}, {"a": 4}, {"b": 1}),
        # In proportion to what is idle, with every unit accounted for.
        ({**TWO, "c": ("C", 4), "d": ("C", 10)}, {"a": 17, "b": 10}, {"a": 7}, {"c": 2, "d": 5}),
        # Through two levels: what X lends comes from the queues in it.
        ({"R": ("", 0), "X": ("R", 0), "a": ("X", 8), "b": ("R", 8)}, {"b": 11}, {"b": 3}, {"X": 3, "a": 3}),
        ({"R": ("", 0), "X": ("R", 0), "a": ("X", 8), "b": ("R", 8)}, {"a": 9, "b": 8}, {"a": 1, "X": 1, "R": 1}, {}),
    ],
)
def test_borrowed_and_lent(tree, used, borrowed, lent):
    found = flows(tree, used)
    assert {name: flow.borrowed for name, flow in found.items() if flow.borrowed} == borrowed
    assert {name: flow.lent for name, flow in found.items() if flow.lent} == lent


def test_sums_of_a_cohort():
    found = flows({**TWO, "C": ("", 3)}, {"a": 4, "b": 6}, draining={"a": 4}, waiting={"b": 5})
    assert found["C"] == Flow(own=3, nominal=23, used=10, draining=4, waiting=5)


def test_a_deleted_queue_that_is_still_charged_is_seen():
    found = flows(TWO, {"gone": 5})
    assert found["gone"].used == 5
    assert found["gone"].borrowed == 5
