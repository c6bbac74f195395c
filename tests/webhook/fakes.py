"""Stand-ins for what the webhook asks: a job kind with a `suspend` field, a lookup, and a cluster in memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

from queue_manager.cluster.port import JOB_SETS, JOBS, TRAIN_JOBS, ApiError, Cluster, Object, PatchType, Resource
from queue_manager.kinds.kind import Finished, Kind, Lookup, Outcome
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.review import GroupKind, Request, User
from queue_manager.webhook.rules import Catalogue, Rules, service_account

OURSELVES = service_account("queue-manager", "queue-manager-controller")
ALICE = User("alice", ("nlp", "system:authenticated"))
ALICE_ANNOTATIONS = {
    "queue-manager.io/user": "alice",
    "queue-manager.io/user-groups": "nlp,system:authenticated",
}
TEAM_QUEUE = {"queue-manager.io/queue": "team"}


class SuspendableKind:
    """What the webhook uses of a kind whose switch is `spec.suspend`."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def is_suspended(self, obj: Object) -> bool:
        return bool(obj.get("spec", {}).get("suspend"))

    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        return [] if self.is_suspended(obj) else [{"op": "add", "path": "/spec/suspend", "value": True}]

    def finished(self, obj: Object) -> Finished | None:
        return Finished(Outcome.SUCCEEDED, "") if obj.get("status", {}).get("done") else None


KINDS = {
    (resource.group, resource.kind): cast(Kind, SuspendableKind(resource)) for resource in (JOBS, JOB_SETS, TRAIN_JOBS)
}


class FakeLookup:
    """Objects by hand."""

    def __init__(self, *objects: Object, kueue_keys: bool = False) -> None:
        self.kueue_keys = kueue_keys
        self._objects = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._objects.get((resource.kind, namespace, name))

    def list(self, resource: Resource, namespace: str) -> Sequence[Object]:
        return [o for (kind, where, _), o in self._objects.items() if (kind, where) == (resource.kind, namespace)]

    def owned_by(self, resource: Resource, uid: str) -> Sequence[Object]:
        return []

    def schema(self, resource: Resource) -> Object | None:
        return None


def job(
    name: str = "job-1",
    *,
    kind: str = "Job",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Object | None = None,
    suspend: bool | None = None,
    uid: str = "",
    **metadata: Any,
) -> Object:
    """A job of any kind; parts that are None are absent."""
    api_version = {"Job": JOBS, "JobSet": JOB_SETS, "TrainJob": TRAIN_JOBS}[kind].api_version
    found: Object = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ml"} | metadata}
    parts = {"labels": labels, "annotations": annotations, "ownerReferences": [owner] if owner else None, "uid": uid}
    found["metadata"] |= {key: value for key, value in parts.items() if value}
    found["spec"] = {} if suspend is None else {"suspend": suspend}
    return found


def owner_of(parent: Object) -> Object:
    """The controller reference to a job."""
    reference = {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": parent["metadata"]["name"]}
    return {**reference, "uid": parent["metadata"]["uid"], "controller": True}


def create(obj: Object, user: User = ALICE, *, managed: bool = False) -> Request:
    """The request that creates the object in namespace `ml`."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = GroupKind(obj["kind"], "v1", group)
    name = obj["metadata"]["name"]
    return Request("1", kind, "CREATE", name, "ml", user, object=obj, managed_namespace=managed)


def update(old: Object, new: Object, user: User = ALICE, *, managed: bool = False) -> Request:
    """The request that turns `old` into `new`."""
    asked = create(new, user, managed=managed)
    return Request("1", asked.kind, "UPDATE", asked.name, "ml", user, new, old, managed)


CATALOGUE = Catalogue(
    local_queues=frozenset({("ml", "team"), ("ml", "default"), ("other", "theirs")}),
    queues=frozenset({"research"}),
    topology_levels=frozenset({"topology/block", "topology/rack"}),
    priority_classes=frozenset({"high"}),
    submitters=frozenset({"system:serviceaccount:pipelines:runner"}),
)


def decider(
    *objects: Object,
    check: Any = lambda obj, lookup: (),
    catalogue: Catalogue | None = CATALOGUE,
    kueue_keys: bool = False,
) -> Decider:
    """A decider over the fake kinds that knows CATALOGUE."""
    rules = Rules(frozenset({OURSELVES}), catalogue=lambda: catalogue)
    return Decider(KINDS, FakeLookup(*objects, kueue_keys=kueue_keys), rules, check)


def patched(obj: Object, operations: list[Object]) -> Object:
    """The object after JSON Patch operations on fields of maps."""
    result = copy.deepcopy(obj)
    for operation in operations:
        *path, last = (p.replace("~1", "/").replace("~0", "~") for p in operation["path"].removeprefix("/").split("/"))
        target = result
        for step in path:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add"
            target[last] = operation["value"]
    return result


class FakeCluster:
    """Get, create, merge patch and delete with resource versions; the rest of the port is not there."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.writes: list[str] = []
        self._version = 0

    @property
    def port(self) -> Cluster:
        return cast(Cluster, self)

    def _stored(self, resource: Resource, namespace: str, name: str) -> Object:
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise ApiError(404, "NotFound", f"{resource.plural} {name}") from None

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return copy.deepcopy(self._stored(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        key = resource.plural, namespace, body["metadata"]["name"]
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f"{key}")
        return self._store("create", key, copy.deepcopy(body))

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Object, patch_type: PatchType, **options: Any
    ) -> Object:
        assert patch_type is PatchType.MERGE
        found = copy.deepcopy(self._stored(resource, namespace, name))
        wanted = body["metadata"].get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._store("patch", (resource.plural, namespace, name), _merged(found, body))

    async def delete(self, resource: Resource, namespace: str, name: str, **options: Any) -> None:
        self._stored(resource, namespace, name)
        del self.objects[resource.plural, namespace, name]
        self.writes.append(f"delete {resource.plural}")

    def _store(self, verb: str, key: tuple[str, str, str], obj: Object) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = obj
        self.writes.append(f"{verb} {key[0]}")
        return copy.deepcopy(obj)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = _merged(result.get(key), value)
    return {key: value for key, value in result.items() if value is not None}
