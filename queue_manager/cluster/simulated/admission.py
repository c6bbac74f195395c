"""Admission webhooks of the simulated API server: functions that mutate or refuse a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.cluster.port import ApiError, Object, Resource


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What a webhook is asked; `operation` is CREATE, UPDATE or DELETE."""

    operation: str
    resource: Resource
    namespace: str
    name: str
    object: Object | None
    old_object: Object | None
    user: str
    groups: tuple[str, ...] = ()
    subresource: str = ""


Mutator = Callable[[AdmissionRequest], list[Object]]
"""Answers JSON Patch operations; raises `denied(...)`."""

Validator = Callable[[AdmissionRequest], None]
"""Raises `denied(...)` to refuse."""


_CONTROLLERS = {
    "trainer": "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
    "jobset-controller": "system:serviceaccount:jobset-system:jobset-controller-manager",
    "kube-controller-manager": "system:serviceaccount:kube-system:job-controller",
}


def user_of(manager: str) -> str:
    """The user as which a simulated controller makes its requests."""
    return _CONTROLLERS.get(manager, f"system:{manager}")


def denied(webhook: str, message: str) -> ApiError:
    """The answer of the API server when a webhook says no without a code of its own."""
    return ApiError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {message}')


def invalid(resource: Resource, name: str, *messages: str) -> ApiError:
    """The answer of the API server when its own validation or a schema says no."""
    listed = messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}')
