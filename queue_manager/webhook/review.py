"""AdmissionReview v1 (admission.k8s.io) as the API server posts it, and the answers to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec

from queue_manager.cluster.port import Object
from queue_manager.kinds import kueue_keys

API_VERSION = "admission.k8s.io/v1"

KUEUE = kueue_keys.KUEUE.rstrip("/").encode()


class GroupKind(msgspec.Struct, frozen=True):
    """The kind as the webhook's rule names it (the server converts to that version)."""

    kind: str
    version: str = ""
    group: str = ""


class User(msgspec.Struct, frozen=True):
    """Who asks, as the API server authenticated them."""

    username: str = ""
    groups: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an AdmissionRequest that decisions need. `object` is None on DELETE, `old_object` on CREATE.

    `managed_namespace` says that the namespace carries the `managed` label; the route of the request tells it: the API
    server has evaluated the selector on the namespace of this very moment, a cache of ours may lag behind it. `read`
    holds other objects that were read for it (`webhook.owners`). `names_kueue` is False where no key of Kueue's can
    stand anywhere in the objects.
    """

    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    name: str = ""
    namespace: str = ""
    user_info: User = User()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    managed_namespace: bool = False
    read: dict[Any, Any] = {}
    names_kueue: bool = True


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """What is posted."""

    request: Request
    api_version: str
    kind: str = "AdmissionReview"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer. `refused` is the message of a refusal, "" when allowed; `patch` are JSON Patch operations."""

    refused: str = ""
    patch: list[Object] = field(default_factory=list)
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.refused


_DECODER = msgspec.json.Decoder(Review)


def decode(body: bytes, *, managed_namespace: bool = False) -> Request:
    """The request of a posted review.

    Raises: ValueError when the body is no AdmissionReview of version v1.
    """
    try:
        review = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an AdmissionReview: {error}") from None
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        raise ValueError(f"{API_VERSION} AdmissionReview is expected, this is {review.api_version} {review.kind}")
    return msgspec.structs.replace(
        review.request,
        managed_namespace=managed_namespace,
        # A backslash may hide a letter of it.
        names_kueue=KUEUE in body or b"\\u" in body,
        read={},
    )


def encode(uid: str, verdict: Verdict) -> bytes:
    """The review that answers request `uid`."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if verdict.refused:
        response["status"] = {"status": "Failure", "code": 422, "reason": "Invalid", "message": verdict.refused}
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    if verdict.allowed and verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
