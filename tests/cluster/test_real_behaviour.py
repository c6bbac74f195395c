"""The same behaviour on a real control plane, with real Job and JobSet controllers and the stand-in for Trainer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import CLUSTER_TRAINING_RUNTIMES, NODES, Cluster
from queue_manager.cluster.simulated.runtimes import torch_distributed
from queue_manager.cluster.transport import ApiServer
from tests.cluster.behaviour import Behaviour
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet

pytestmark = pytest.mark.cluster


class TestReal(Behaviour):
    @pytest.fixture
    async def cluster(self, control_plane_stand_in: ControlPlane) -> AsyncIterator[Cluster]:
        # Each test has a namespace of its own and takes its nodes away again: no reset of the whole in between.
        nodes = control_plane_stand_in.create_nodes(gpu_fleet(1, 2, 2))
        server = ApiServer(Credentials.kubeconfig(str(control_plane_stand_in.kubeconfig)))
        runtime = torch_distributed()
        name = runtime["metadata"]["name"]
        present = {found["metadata"]["name"] for found in (await server.list(CLUSTER_TRAINING_RUNTIMES)).items}
        if name not in present:
            await server.create(CLUSTER_TRAINING_RUNTIMES, "", runtime)
        yield server
        if name not in present:
            await server.delete(CLUSTER_TRAINING_RUNTIMES, "", name)
        for node in nodes:
            await server.delete(NODES, "", node)
        await server.close()

    @pytest.fixture
    def rack(self) -> str:
        return "b1-r2"

    @pytest.fixture
    def block(self) -> str:
        return "b1"
