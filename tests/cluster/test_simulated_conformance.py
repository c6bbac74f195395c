"""The simulated cluster keeps the port's contract."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.port import Cluster
from queue_manager.cluster.simulated import SimulatedCluster
from tests.cluster.conformance import Conformance


class TestSimulated(Conformance):
    @pytest.fixture
    async def cluster(self) -> Cluster:
        return SimulatedCluster(SystemClock(), Random(1))
