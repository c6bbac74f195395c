"""Amounts of quota are edited in place: the numbers are those of a tree that is built anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.configuration import CellQuota, Configuration, FlavorQuotas, Node, Queue, ResourceGroup
from queue_manager.engine.edits import quota_edits
from queue_manager.engine.engine import Engine
from queue_manager.engine.tree import EMPTY, FUTURE, NOW
from queue_manager.engine.workload import Workload
from tests.engine.generate import COMMON, batches, configurations, copy_of, engine_of, nodes

LIMITS = st.none() | st.integers(0, 6)


def numbers(engine: Engine) -> Any:
    tree = engine._state.tree
    return {
        node.path: [
            {cell: amount for cell, amount in amounts.items() if amount}
            for amounts in (node.subtree, node.local, node.usage[NOW], node.usage[FUTURE])
        ]
        + [{cell: node.available(cell, view) for cell in node.subtree} for view in (NOW, FUTURE, EMPTY)]
        for node in [*tree.queues.values(), *tree.cohorts.values()]
    }


def edited(groups: tuple[ResourceGroup, ...], quotas: list[CellQuota]) -> tuple[ResourceGroup, ...]:
    return tuple(
        replace(g, flavors=tuple(replace(f, quotas={r: quotas.pop() for r in f.quotas}) for f in g.flavors))
        for g in groups
    )


@COMMON
@given(configurations(), nodes(), batches(2, 8), st.data())
def test_an_edit_in_place_leaves_the_numbers_of_a_tree_built_anew(
    c: Configuration, n: list[Node], b: list[Workload], data: st.DataObject
) -> None:
    engine = engine_of(c, n, b)
    engine.plan(1)
    for step in range(3):
        holders = c.queues if data.draw(st.booleans()) else c.cohorts
        name = data.draw(st.sampled_from(sorted(holders)))
        quotas = data.draw(st.lists(st.builds(CellQuota, st.integers(0, 9), LIMITS, LIMITS), min_size=4, max_size=4))
        old = holders[name]
        new = replace(old, resource_groups=edited(old.resource_groups, quotas))
        if isinstance(new, Queue):
            c = replace(c, queues={**c.queues, name: new})
        else:
            c = replace(c, cohorts={**c.cohorts, name: new})
        tree = engine._state.tree
        engine.configure(c)
        assert engine._state.tree is tree
        assert numbers(engine) == numbers(copy_of(engine))
        engine.plan(2 + step)


def test_only_amounts_are_edited_in_place() -> None:
    def queue(flavor: str = "f", nominal: int = 1, **more: Any) -> Configuration:
        groups = (ResourceGroup(("cpu",), (FlavorQuotas(flavor, {"cpu": CellQuota(nominal)}),)),)
        return Configuration(queues={"q": Queue("q", resource_groups=groups, **more)})

    old = queue()
    edits = quota_edits(old, queue(nominal=2))
    assert edits is not None
    assert list(edits.queues) == ["q"]
    assert quota_edits(old, queue(flavor="g")) is None
    assert quota_edits(old, queue(cohort="root")) is None
    assert quota_edits(old, Configuration()) is None
    assert quota_edits(old, replace(queue(), resources=replace(old.resources, ignore_undeclared=True))) is None
