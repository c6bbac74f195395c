"""The configuration as roles that only read it know it."""

from __future__ import annotations

from datetime import UTC, datetime

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.cli.roles import ConfigurationWatch
from queue_manager.store.store import Store

TOPOLOGY = """
apiVersion: queue-manager.io/v1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
"""


async def test_a_revision_that_no_notification_has_told_of_is_known_after_a_look(store: Store) -> None:
    watch = ConfigurationWatch(store)
    assert await watch.catch_up()
    assert not await watch.catch_up()
    apply_text(Context(store, lambda: datetime.now(UTC)), TOPOLOGY, file="test.yaml")
    known = watch.catalogue()
    assert known is not None
    assert "rack" not in known.topology_levels
    assert await watch.catch_up()
    now = watch.catalogue()
    assert now is not None
    assert "rack" in now.topology_levels
