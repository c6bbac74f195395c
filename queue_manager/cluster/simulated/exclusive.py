"""JobSet's webhook on pods: exclusive placement, leaders first (`workloads.md` §3.7)."""

from __future__ import annotations

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.port import NODES, PODS, Object
from queue_manager.cluster.simulated.admission import AdmissionRequest, denied
from queue_manager.cluster.simulated.api_server import ApiState
from queue_manager.cluster.simulated.documents import read
from queue_manager.cluster.simulated.job_controller import INDEX

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
WEBHOOK = "mpod.kb.io"


class ExclusivePods:
    """Followers are refused until the leader of their Job is scheduled, then get its domain. Leaders would get
    affinities, which are left out: the simulated scheduler knows none."""

    def __init__(self, api: ApiState) -> None:
        self._api = api

    def mutate(self, request: AdmissionRequest) -> list[Object]:
        """The node selector of a follower; denies it while its leader is not scheduled."""
        pod = request.object
        if request.operation != "CREATE" or request.resource != PODS or pod is None:
            return []
        key = read(pod, "metadata", "annotations", EXCLUSIVE, default="")
        if not key or read(pod, "metadata", "labels", INDEX, default="0") == "0":
            return []
        node = self._node_of_leader(pod, request.namespace)
        if node is None:
            raise denied(WEBHOOK, "leader pod not yet scheduled, not creating follower pod")
        value = node["metadata"].get("labels", {}).get(key, "")
        selector = {**(pod["spec"].get("nodeSelector") or {}), key: value}
        return [{"op": "add", "path": "/spec/nodeSelector", "value": selector}]

    def _node_of_leader(self, pod: Object, namespace: str) -> Object | None:
        owner = controller_of(pod)
        for other in self._api.storage.all(PODS):
            metadata = other["metadata"]
            same = metadata["namespace"] == namespace and controller_of(other) == owner
            if same and not metadata.get("deletionTimestamp") and metadata["labels"].get(INDEX) == "0":
                name = other["spec"].get("nodeName")
                return self._api.peek(NODES, "", name) if name else None
        return None
