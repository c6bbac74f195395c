"""The simulated API server: verbs with the real one's answers. Synchronous; `cluster.py` puts the port around it."""

from __future__ import annotations

import uuid
from random import Random

from queue_manager.cluster.cache import key_of
from queue_manager.cluster.clock import Clock, rfc3339
from queue_manager.cluster.port import (
    CONFIG_MAPS,
    CRDS,
    DEVICE_CLASSES,
    EVENTS,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RUNTIME_CLASSES,
    SECRETS,
    TOKEN_REVIEWS,
    VALIDATING_WEBHOOKS,
    ApiError,
    EventType,
    Object,
    Page,
    PatchBody,
    PatchType,
    Query,
    Resource,
)
from queue_manager.cluster.simulated.admission import AdmissionRequest, Mutator, Validator, user_of
from queue_manager.cluster.simulated.apply import Owners, applied, fields_of, updated
from queue_manager.cluster.simulated.crds import Schema, pruned_object
from queue_manager.cluster.simulated.deletion import deletion_marked, deletion_refused, graceful_seconds
from queue_manager.cluster.simulated.documents import copied
from queue_manager.cluster.simulated.job_rules import JOB_RULES
from queue_manager.cluster.simulated.patches import json_patched, merge_patched, strategic_merged
from queue_manager.cluster.simulated.rules import CORE_RULES, Rules
from queue_manager.cluster.simulated.selectors import matcher
from queue_manager.cluster.simulated.storage import Change, Storage
from queue_manager.cluster.simulated.token_reviews import reviewed

BUILT_IN = frozenset(
    (
        *(CONFIG_MAPS, CRDS, EVENTS, JOBS, LEASES, LIMIT_RANGES, MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS),
        *(
            DEVICE_CLASSES,
            RESOURCE_CLAIM_TEMPLATES,
            RESOURCE_CLAIMS,
            RUNTIME_CLASSES,
            PRIORITY_CLASSES,
            SECRETS,
            VALIDATING_WEBHOOKS,
        ),
    )
)

_MOST_SNAPSHOTS = 64
_PROTECTED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class ApiState:
    """All objects and the rules for them. `accounts` are users and groups of the tokens that it knows."""

    def __init__(self, clock: Clock, random: Random, history: int = 10_000) -> None:
        self.storage = Storage(history)
        self.mutators: list[Mutator] = []
        self.validators: list[Validator] = []
        self.accounts: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._clock = clock
        self._random = random
        self._owners: dict[str, Owners] = {}
        self._schemas: dict[tuple[str, str, str], Schema] = {}
        self._rules: dict[Resource, Rules] = {}
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}
        self.storage.listen(self._noticed)

    # Reading

    def time(self) -> str:
        """Now, as the API writes it."""
        return rfc3339(self._clock.now())

    def peek(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """A stored object or None."""
        return self.storage.get(resource, namespace if resource.namespaced else "", name)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """A stored object, or ApiError 404."""
        self._require_served(resource)
        obj = self.peek(resource, namespace, name)
        if obj is None:
            raise _not_found(resource, name)
        return obj

    def serves(self, resource: Resource) -> bool:
        """Whether it is built in or defined by a CRD."""
        return resource in BUILT_IN or (resource.group, resource.version, resource.plural) in self._schemas

    def list(self, resource: Resource, query: Query, continue_token: str) -> Page:
        """One page, in the order of the keys; later pages come from the snapshot of the first."""
        self._require_served(resource)
        if continue_token:
            if continue_token not in self._snapshots:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
            version, found = self._snapshots.pop(continue_token)
        else:
            matches = matcher(resource, query)
            found = sorted((obj for obj in self.storage.all(resource) if matches(obj)), key=key_of)
            version = self.storage.version
        if not query.limit or len(found) <= query.limit:
            return Page(found, str(version))
        token = f"page-{self._random.getrandbits(64):016x}"
        self._snapshots[token] = (version, found[query.limit :])
        while len(self._snapshots) > _MOST_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        return Page(found[: query.limit], str(version), token)

    def compact(self) -> None:
        """Forgets history and page snapshots, as etcd's compaction does."""
        self._snapshots.clear()
        self.storage.compact()

    # Writing

    def create(
        self,
        resource: Resource,
        namespace: str,
        body: Object,
        *,
        manager: str,
        user: str = "",
        groups: tuple[str, ...] = (),
    ) -> Object:
        """Stores a new object."""
        if resource == TOKEN_REVIEWS:
            return reviewed(body, self.accounts)
        self._require_served(resource)
        new = self._new_object(resource, namespace, body)
        name = new["metadata"]["name"]
        if resource.namespaced and self.peek(NAMESPACES, "", namespace) is None:
            raise _not_found(NAMESPACES, namespace)
        if self.peek(resource, namespace, name) is not None:
            raise ApiError(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        new = self._admitted(resource, new, None, user or user_of(manager), groups)
        stored = self.storage.put(resource, new)
        self._own(resource, stored, None, manager)
        if resource == CRDS:
            self._define(stored)
        return stored

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: PatchBody,
        patch_type: PatchType,
        *,
        manager: str,
        subresource: str = "",
        force: bool = False,
        user: str = "",
        groups: tuple[str, ...] = (),
    ) -> Object:
        """Changes one object."""
        self._require_served(resource)
        old = self.peek(resource, namespace, name)
        if patch_type is PatchType.APPLY:
            return self._apply(resource, namespace, name, old, body, manager, force, user, groups)
        if old is None:
            raise _not_found(resource, name)
        if patch_type is PatchType.JSON:
            new = json_patched(old, body)
        elif patch_type is PatchType.MERGE:
            new = merge_patched(old, body)
        elif resource in BUILT_IN:
            new = strategic_merged(old, body)
        else:
            raise ApiError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        return self.update(resource, old, new, manager=manager, subresource=subresource, user=user, groups=groups)

    def update(
        self,
        resource: Resource,
        old: Object,
        new: Object,
        *,
        manager: str,
        subresource: str = "",
        user: str = "",
        groups: tuple[str, ...] = (),
    ) -> Object:
        """Replaces `old` by `new` as far as the subresource reaches. Nothing is written when nothing changes."""
        current = self.peek(resource, old["metadata"].get("namespace", ""), old["metadata"]["name"])
        if current is None:
            raise _not_found(resource, old["metadata"]["name"])
        version = new["metadata"].get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            message = f'Operation cannot be fulfilled on {resource.plural} "{current["metadata"]["name"]}": '
            raise ApiError(409, "Conflict", message + "the object has been modified; please apply your changes again")
        old = current
        new = self._reached(resource, old, new, subresource)
        if not subresource:
            new = self._admitted(resource, new, old, user or user_of(manager), groups)
        if _unchanged(old, new):
            return old
        if {k: v for k, v in old.items() if k not in ("metadata", "status")} != {
            k: v for k, v in new.items() if k not in ("metadata", "status")
        }:
            new = {**new, "metadata": {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}
        stored = self.storage.put(resource, new)
        if not subresource:
            self._own(resource, stored, old, manager)
        if resource == CRDS:
            self._define(stored)
        return self._finalized(resource, stored)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> None:
        """Deletes an object, or marks it when finalizers, a kubelet or its dependents have to act first."""
        old = self.get(resource, namespace, name)
        if (refusal := deletion_refused(resource, old, uid)) is not None:
            raise refusal
        seconds = graceful_seconds(resource, old, grace)
        marked = deletion_marked(old, propagation, seconds, self._clock.now())
        waits = bool(marked["metadata"].get("finalizers")) or seconds > 0
        if resource == NAMESPACES and self._contents(name):
            marked, waits = {**marked, "status": {"phase": "Terminating"}}, True
        if not waits:
            self.storage.remove(resource, namespace if resource.namespaced else "", name)
        elif not _unchanged(old, marked):
            self.storage.put(resource, marked)

    # Inside

    def _apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        old: Object | None,
        body: PatchBody,
        manager: str,
        force: bool,
        user: str,
        groups: tuple[str, ...],
    ) -> Object:
        if not isinstance(body, dict):
            raise ApiError(400, "BadRequest", "an apply patch is an object")
        if old is None:
            wish = {**body, "metadata": {**(body.get("metadata") or {}), "name": name}}
            made = self.create(resource, namespace, wish, manager=manager, user=user, groups=groups)
            self._owners[made["metadata"]["uid"]] = {manager: fields_of(wish)}
            return made
        wish = {k: v for k, v in body.items() if k != "status"}
        uid = old["metadata"]["uid"]
        new, owners = applied(old, wish, manager, self._owners.get(uid, {}), force=force)
        stored = self.update(resource, old, new, manager=manager, user=user, groups=groups)
        if uid in self._owners:
            self._owners[uid] = owners
        return stored

    def _new_object(self, resource: Resource, namespace: str, body: Object) -> Object:
        metadata: Object = dict(body.get("metadata") or {})
        name = metadata.get("name") or ""
        if not name and metadata.get("generateName"):
            name = metadata["generateName"] + "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        if not name:
            raise ApiError(422, "Invalid", f"{resource.kind}: metadata.name: Required value: name or generateName")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion"):
            metadata.pop(field, None)
        metadata |= {
            "name": name,
            "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "creationTimestamp": self.time(),
            "generation": 1,
        }
        if resource.namespaced:
            metadata["namespace"] = namespace
        new = {**copied(body), "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        rules = self._rules_of(resource)
        if rules.status and not rules.keeps_status_on_create:
            new.pop("status", None)
        return new

    def _reached(self, resource: Resource, old: Object, new: Object, subresource: str) -> Object:
        """The new object with everything that this way of writing can't change put back."""
        if subresource == "status":
            return {**old, "status": new.get("status")} if new.get("status") is not None else old
        metadata = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
        for field in (*_PROTECTED, "generation", "resourceVersion"):
            metadata.pop(field, None)
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": metadata}
        if self._rules_of(resource).status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return new

    def _admitted(
        self, resource: Resource, new: Object, old: Object | None, user: str, groups: tuple[str, ...]
    ) -> Object:
        """Defaulting, pruning, webhooks and validation, in the API server's order."""
        rules = self._rules_of(resource)
        operation = "CREATE" if old is None else "UPDATE"
        namespace, name = key_of(new)
        new = rules.prepare(self._pruned(resource, new), old, self)
        for mutator in self.mutators:
            request = AdmissionRequest(operation, resource, namespace, name, new, old, user, groups)
            if operations := mutator(request):
                new = rules.prepare(self._pruned(resource, json_patched(new, operations)), old, self)
        rules.check(new, old, self)
        for validator in self.validators:
            validator(AdmissionRequest(operation, resource, namespace, name, new, old, user, groups))
        return new

    def _pruned(self, resource: Resource, obj: Object) -> Object:
        schema = self._schemas.get((resource.group, resource.version, resource.plural))
        return pruned_object(obj, schema) if schema else obj

    def _finalized(self, resource: Resource, obj: Object) -> Object:
        """Removes an object that only waited for its last finalizer."""
        metadata = obj["metadata"]
        pending = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not pending:
            return self.storage.remove(resource, *key_of(obj))
        return obj

    def _own(self, resource: Resource, new: Object, old: Object | None, manager: str) -> None:
        # Field owners of pods and events are never asked for, and there are many of those.
        if resource not in (PODS, EVENTS, NODES, LEASES):
            uid = new["metadata"]["uid"]
            self._owners[uid] = updated(old, new, manager, self._owners.get(uid, {}))

    def _rules_of(self, resource: Resource) -> Rules:
        rules = self._rules.get(resource)
        if rules is None:
            rules = CORE_RULES.get(resource) or JOB_RULES.get(resource) or Rules(resource)
            self._rules[resource] = rules
        return rules

    def _define(self, crd: Object) -> None:
        spec = crd["spec"]
        self._undefine(crd)
        for version in spec["versions"]:
            if version.get("served"):
                schema: Schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
                known = {**schema, "properties": {**schema.get("properties", {})}}
                self._schemas[(spec["group"], version["name"], spec["names"]["plural"])] = known

    def _undefine(self, crd: Object) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key in self._schemas if (key[0], key[2]) == (group, plural)]:
            del self._schemas[key]

    def _noticed(self, change: Change) -> None:
        """Follows removals: field owners, definitions with their objects, namespaces that became empty."""
        if change.type is not EventType.DELETED:
            return
        self._owners.pop(change.new["metadata"]["uid"], None)
        namespace = change.new["metadata"].get("namespace")
        if change.resource == CRDS:
            self._undefine(change.new)
            self._forget_collection(change.new)
        elif namespace:
            owner = self.peek(NAMESPACES, "", namespace)
            terminating = owner is not None and owner["metadata"].get("deletionTimestamp")
            if terminating and not self._contents(namespace):
                self.storage.remove(NAMESPACES, "", namespace)

    def _forget_collection(self, crd: Object) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for resource in self.storage.resources():
            if (resource.group, resource.plural) == (group, plural):
                for obj in self.storage.all(resource):
                    self.storage.remove(resource, *key_of(obj))
                self.storage.end_watches(resource)

    def _contents(self, namespace: str) -> bool:
        """Whether anything lives in the namespace."""
        return any(
            obj["metadata"]["namespace"] == namespace
            for resource in self.storage.resources()
            if resource.namespaced
            for obj in self.storage.all(resource)
        )

    def _require_served(self, resource: Resource) -> None:
        if not self.serves(resource):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")


def _not_found(resource: Resource, name: str) -> ApiError:
    group = f".{resource.group}" if resource.group else ""
    return ApiError(404, "NotFound", f'{resource.plural}{group} "{name}" not found')


def _unchanged(old: Object, new: Object) -> bool:
    return old == new
