"""The simulated cluster behaves like the real one where the product depends on it; here on the machine's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.port import Cluster
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.simulated.fleet import install
from queue_manager.cluster.simulated.kubelet import Pace
from tests.cluster.behaviour import Behaviour


class TestSimulated(Behaviour):
    @pytest.fixture
    async def cluster(self) -> AsyncIterator[Cluster]:
        made = SimulatedCluster(SystemClock(), Random(1), pace=Pace(start=0.1, termination=0.1), lag=0.02)
        install(made)
        running = asyncio.create_task(made.run())
        yield made
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    @pytest.fixture
    def rack(self) -> str:
        return "block-1-rack-2"

    @pytest.fixture
    def block(self) -> str:
        return "block-1"
