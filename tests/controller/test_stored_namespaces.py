"""Labels of namespaces, which the leader keeps in the store for plans made elsewhere."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.port import NAMESPACES
from queue_manager.controller.term import Term
from queue_manager.controller.timed import save_cluster
from queue_manager.store.store import Store
from tests.controller.world import World, inline
from tests.store.builders import lead


async def ready(world: World) -> Term:
    """The term of a controller that has caught up."""
    await world.until_ready()
    assert world.controller is not None
    assert world.controller.term is not None
    return world.controller.term


async def test_labels_are_saved_as_they_change_and_only_then(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(store) as world:
        assert store.load_namespaces() is None
        world.cluster.state.create(
            NAMESPACES, "", {"metadata": {"name": "lab", "labels": {"team": "nlp"}}}, manager="kubectl"
        )
        term = await ready(world)
        await save_cluster(term)
        saved = store.load_namespaces()
        assert saved is not None
        assert saved["lab"]["team"] == "nlp"
        assert "ns" in saved
        with monkeypatch.context() as patch:
            patch.setattr(store, "save_namespaces", lambda *_: 1 / 0)
            await save_cluster(term)
        world.cluster.state.delete(NAMESPACES, "", "lab")
        await world.clock.advance(10)
        await save_cluster(term)
        saved = store.load_namespaces()
        assert saved is not None
        assert "lab" not in saved


async def test_a_term_that_has_not_caught_up_takes_nothing_for_gone(store: Store) -> None:
    async with World(store) as world:
        await save_cluster(await ready(world))
        nodes, namespaces = store.load_nodes(), store.load_namespaces()
        assert nodes
        assert namespaces
        await world.kill()
        term = Term(
            store,
            world.cluster,
            lead(store),
            clock=world.clock,
            random=Random(0),
            in_thread=inline,
            valid=lambda: True,
        )
        await term.stored_nodes.load()
        await term.stored_namespaces.load()
        await save_cluster(term)
        assert (store.load_nodes(), store.load_namespaces()) == (nodes, namespaces)
