"""The webhook configurations of the API server: what is sent to us, and that it stays so."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queue_manager.cluster.port import (
    JOB_SETS,
    JOBS,
    MUTATING_WEBHOOKS,
    TRAIN_JOBS,
    VALIDATING_WEBHOOKS,
    ApiError,
    Cluster,
    Object,
    PatchType,
    Resource,
)
from queue_manager.kinds.kind import MANAGED_LABEL, QUEUE_LABEL
from queue_manager.webhook.rules import service_account
from queue_manager.webhook.server import MUTATE, NAMESPACE, VALIDATE

NAME = "queue-manager.io"
"""Name of both configurations."""

LABELS = {"app.kubernetes.io/name": "queue-manager", "app.kubernetes.io/part-of": "queue-manager"}

RESOURCES = (TRAIN_JOBS, JOB_SETS, JOBS)
"""Rules may name resources that the cluster does not serve (yet)."""

TIMEOUT_SECONDS = 10

CONTROLLER_ACCOUNT = "queue-manager-controller"
"""Service account of the controller: its writes to jobs are ours."""


@dataclass(frozen=True, slots=True)
class Service:
    """The API server calls a Service of the cluster."""

    namespace: str
    name: str = "queue-manager-webhook"
    port: int = 443

    def client_config(self, path: str) -> Object:
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}}


@dataclass(frozen=True, slots=True)
class Url:
    """The API server calls an address (`https://host:port`) outside the cluster."""

    url: str

    def client_config(self, path: str) -> Object:
        return {"url": self.url.rstrip("/") + path}


Target = Service | Url


@dataclass(frozen=True, slots=True)
class Selection:
    """What is sent to us.

    Requests of `identities` (our own user names) never are: our controller can start and stop jobs while the webhook is
    down. `namespaces` are left out: those of the cluster and our own.
    """

    identities: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ("kube-system", "queue-manager")
    queue_labels: tuple[str, ...] = (QUEUE_LABEL,)
    resources: tuple[Resource, ...] = RESOURCES


def installed(namespace: str) -> tuple[Service, Selection]:
    """Target and selection of an installation in this namespace (deploy/install.yaml holds the same ones)."""
    controller = service_account(namespace, CONTROLLER_ACCOUNT)
    return Service(namespace), Selection(identities=(controller,), namespaces=("kube-system", namespace))


def configurations(target: Target, ca_bundle: bytes, selection: Selection = Selection()) -> dict[Resource, Object]:
    """Both configurations, every field spelled out, so that what the server stores equals what is wished."""
    common: dict[str, Any] = {
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    mutating = {"reinvocationPolicy": "IfNeeded", "rules": _rules(selection, ["CREATE"])}
    validating = {"rules": _rules(selection, ["CREATE", "UPDATE"])}
    return {
        MUTATING_WEBHOOKS: _configuration(
            MUTATING_WEBHOOKS, _webhooks(target, ca_bundle, selection, MUTATE, common | mutating)
        ),
        VALIDATING_WEBHOOKS: _configuration(
            VALIDATING_WEBHOOKS, _webhooks(target, _told_apart(ca_bundle), selection, VALIDATE, common | validating)
        ),
    }


async def register(cluster: Cluster, target: Target, ca_bundle: bytes, selection: Selection = Selection()) -> bool:
    """Makes both configurations as they should be.

    Called again and again it repairs what others changed and takes over a new CA bundle. Returns whether anything was
    written. Raises ApiError.
    """
    changed = False
    for resource, wanted in configurations(target, ca_bundle, selection).items():
        changed |= await _ensure(cluster, resource, wanted)
    return changed


async def unregister(cluster: Cluster) -> None:
    """Takes both configurations away: jobs start without us from now on. Raises ApiError."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        try:
            await cluster.delete(resource, "", NAME)
        except ApiError as error:
            if not error.not_found:
                raise


async def _ensure(cluster: Cluster, resource: Resource, wanted: Object) -> bool:
    for _ in range(5):
        try:
            found = await cluster.get(resource, "", NAME)
        except ApiError as error:
            if not error.not_found:
                raise
            found = None
        try:
            if found is None:
                await cluster.create(resource, "", wanted)
                return True
            if found.get("webhooks") == wanted["webhooks"]:
                return False
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            body = {"metadata": version, "webhooks": wanted["webhooks"]}
            await cluster.patch(resource, "", NAME, body, PatchType.MERGE)
            return True
        except ApiError as error:
            # Another replica was faster, or the object went away: look again.
            if not (error.conflict or error.not_found):
                raise
    raise ApiError(
        409, "Conflict", f"{resource.plural} {NAME} changes all the time: do several installations share it?"
    )


def _configuration(resource: Resource, webhooks: list[Object]) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME, "labels": dict(LABELS)},
        "webhooks": webhooks,
    }


def _webhooks(
    target: Target, ca_bundle: bytes, selection: Selection, path: str, common: Mapping[str, Any]
) -> list[Object]:
    """One entry for each label that names a queue, and one for jobs without any in managed namespaces."""
    conditions = _conditions(selection)
    excluded = _expression("kubernetes.io/metadata.name", "NotIn", selection.namespaces)
    entries = []
    for index, label in enumerate(selection.queue_labels):
        before = [_expression(earlier, "DoesNotExist") for earlier in selection.queue_labels[:index]]
        name = "label" if index == 0 else f"label-{index}"
        entries.append((name, path, [excluded], [*before, _expression(label, "Exists")]))
    managed = _expression(MANAGED_LABEL, "In", ["true"])
    unlabelled = [_expression(label, "DoesNotExist") for label in selection.queue_labels]
    entries.append(("namespace", path + NAMESPACE, [managed, excluded], unlabelled))
    bundle = base64.b64encode(ca_bundle).decode()
    return [
        {
            "name": f"{name}.jobs.{NAME}",
            "clientConfig": target.client_config(to) | ({"caBundle": bundle} if bundle else {}),
            "namespaceSelector": {"matchExpressions": namespaces},
            "objectSelector": {"matchExpressions": objects},
            "matchConditions": conditions,
            **common,
        }
        for name, to, namespaces, objects in entries
    ]


def _told_apart(ca_bundle: bytes) -> bytes:
    """The same certificates in other bytes.

    To one address an API server keeps 25 idle connections for each bundle, and makes a new one whenever more calls are
    under way at once: a handshake that costs it and us more than the call. Where it calls a Service each path has its
    own connections anyway, where it calls a URL they are shared by all that say the same: so mutating and validating
    calls have 25 each.
    """
    return ca_bundle + b"\n" if ca_bundle else b""


def _expression(key: str, operator: str, values: Sequence[str] = ()) -> Object:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _rules(selection: Selection, operations: list[str]) -> list[Object]:
    return [
        {
            "apiGroups": [resource.group],
            "apiVersions": [resource.version],
            "resources": [resource.plural],
            "operations": operations,
            "scope": "Namespaced",
        }
        for resource in selection.resources
    ]


def _conditions(selection: Selection) -> list[Object]:
    """Requests that need no look of ours even while we are down: our own writes, objects on their way out (the garbage
    collector takes finalizers off), and children that their controller makes or changes.

    One condition, since the API server works out all there are for each request, whatever the first one says; in it the
    parts come first that are cheap and mostly decide.
    """
    names = ", ".join(f'"{name}"' for name in selection.identities)
    ourselves = [f"!(request.userInfo.username in [{names}])"] if names else []
    groups = " || ".join(f'o.apiVersion.startsWith("{r.group}/") && o.kind == "{r.kind}"' for r in selection.resources)
    component = (
        '(request.userInfo.username.startsWith("system:") || '
        '(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g == "system:masters")))'
    )
    child = (
        f"has(object.metadata.ownerReferences) && {component} && "
        f"object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && ({groups}))"
    )
    parts = [*ourselves, "!has(object.metadata.deletionTimestamp)", f"!({child})"]
    return [{"name": "not-ourselves-not-leaving-not-a-child", "expression": " && ".join(parts)}]
