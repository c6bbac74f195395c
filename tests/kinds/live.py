"""The kinds on a real API server: a lookup that asks it, and a driver that performs their steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from queue_manager.cluster.port import CRDS, TRAIN_JOBS, Object, Resource
from queue_manager.kinds.fields import is_controlled_by
from queue_manager.kinds.kind import Done, Kind, Placement, Step, Write
from tests.control_plane.client import ApiError, Client
from tests.control_plane.cluster import ControlPlane

PATIENCE = 40.0


class LiveLookup:
    """Asks the API server each time."""

    kueue_keys = False

    def __init__(self, client: Client) -> None:
        self.client = client

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self.client.find(named(resource), name, namespace or None)

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        return self.client.list(named(resource), namespace or None)

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        return [obj for obj in self.client.list(named(resource)) if is_controlled_by(obj, uid)]

    def schema(self, resource: Resource) -> Object | None:
        if resource != TRAIN_JOBS:
            return None
        crd = self.client.find(named(CRDS), f"{resource.plural}.{resource.group}")
        found: Object | None = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] if crd else None
        return found


def named(resource: Resource) -> str:
    """The test client's name of a collection."""
    return f"{resource.api_version}/{resource.kind}"


class Live:
    """One kind on one namespace."""

    def __init__(self, cluster: ControlPlane, kind: Kind, namespace: str = "") -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.kind = kind
        self.lookup = LiveLookup(cluster.client)
        self.namespace = namespace or cluster.new_namespace()
        self.says: list[str] = []

    def create(self, made: tuple[Resource, Object]) -> str:
        """Creates the job with its webhook operations done, in this namespace; its name."""
        resource, obj = made
        obj["metadata"]["namespace"] = self.namespace
        return str(self.client.create(obj)["metadata"]["name"]) if resource else ""

    def get(self, name: str) -> Object:
        return self.client.get(named(self.kind.resource), name, self.namespace)

    def pod_sets(self, name: str) -> dict[str, Any]:
        resolved = self.kind.resolve(self.get(name), self.lookup)
        return {pod_set.name: pod_set for group in resolved.pod_groups for pod_set in group.pod_sets}

    def start(self, name: str, placement: Placement) -> None:
        """Steps until Done."""
        self._drive(lambda refused: self.kind.next_start(self.get(name), placement, self.lookup, refused=refused), Done)

    def suspend(self, name: str) -> None:
        """Steps of a stop until only the pods are left."""
        self._drive(
            lambda refused: self.kind.next_stop(self.get(name), self.lookup, drained=False, refused=refused), None
        )

    def stop(self, name: str) -> None:
        """Suspends, waits until no pod is left, restores."""
        self.suspend(name)
        self.running(name, {})
        self._drive(
            lambda refused: self.kind.next_stop(self.get(name), self.lookup, drained=True, refused=refused), Done
        )

    def _drive(self, ask: Any, end: type[Any] | None) -> None:
        """Asks and performs until the answer is of type `end` (None: anything but a write). What is said is kept."""
        refused = ""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            step: Step = ask(refused)
            if isinstance(step, Write):
                refused = self._perform(step, refused)
            elif end is None or isinstance(step, end):
                return
            else:
                time.sleep(0.1)
        raise AssertionError(f"no end; said: {self.says}; refused: {refused}")

    def _perform(self, write: Write, refused: str) -> str:
        """Performs a write; the server's message when it refuses it as invalid."""
        kind = named(write.resource)
        try:
            if write.verb == "delete":
                self.client.delete(kind, write.name, write.namespace, propagation=write.propagation)
            else:
                self.client.patch(
                    kind,
                    write.name,
                    write.body,
                    write.namespace,
                    form=str(write.patch_type),
                    subresource=write.subresource,
                )
        except ApiError as error:
            # A JSON Patch whose test fails gets an answer that names nothing.
            if error.status == 409 or "rejected our request due to an error" in error.message:
                time.sleep(0.05)
                return refused
            self.says.append(f"refused: {write.says}: {error}")
            time.sleep(0.1)
            return str(error)
        self.says.append(write.says)
        return ""

    def running(self, name: str, counts: dict[str, int]) -> dict[str, list[Object]]:
        """Waits until exactly these pods run, by pod set; the pods."""
        selector = ",".join(f"{key}={value}" for key, value in self.kind.pod_selector(self.get(name)).items())

        def pods() -> list[Object]:
            return [
                pod
                for pod in self.cluster.pods(self.namespace, selector)
                if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ]

        def check() -> bool:
            found = Counter(self.kind.pod_set_of(pod) for pod in pods() if pod["status"].get("phase") == "Running")
            return dict(found) == {key: count for key, count in counts.items() if count} and len(pods()) == sum(
                counts.values()
            )

        self.client.wait(
            check,
            f"pods {counts} of {name}",
            timeout=PATIENCE,
            show=lambda: [
                (pod["metadata"]["name"], pod["status"].get("phase"), pod["spec"].get("nodeSelector")) for pod in pods()
            ],
        )
        found: dict[str, list[Object]] = {}
        for pod in pods():
            found.setdefault(self.kind.pod_set_of(pod), []).append(pod)
        return found
