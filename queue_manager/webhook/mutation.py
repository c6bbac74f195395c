"""The mutating decision: a managed job is created suspended and carries who asked for it."""

from __future__ import annotations

import json

from queue_manager.cluster.port import Object
from queue_manager.kinds.kind import QUEUE_LABEL, Kind, Lookup
from queue_manager.webhook.review import Request, Verdict
from queue_manager.webhook.rules import DEFAULT_QUEUE, GROUPS_ANNOTATION, USER_ANNOTATION, Rules
from queue_manager.webhook.scope import annotations_of, labels_of, queue_label


def mutate_job(request: Request, obj: Object, kind: Kind, rules: Rules, lookup: Lookup) -> Verdict:
    """The patch for a managed top-level job at its creation. A second call on its result gives no operation."""
    patch = list(kind.suspend_on_create(obj, lookup))
    if queue_label(obj, rules) is None:
        # Written down, so that the job stays managed when the namespace's label goes.
        patch += _set(obj, "labels", {QUEUE_LABEL: DEFAULT_QUEUE})
    patch += _set(obj, "annotations", _identity(request, obj, rules))
    return Verdict(patch=patch)


def groups_value(groups: tuple[str, ...]) -> str:
    """Value of the `user-groups` annotation: a JSON list, because group names of directories contain commas."""
    return json.dumps(list(groups), ensure_ascii=False, separators=(",", ":"))


def _identity(request: Request, obj: Object, rules: Rules) -> dict[str, str]:
    """The wanted annotations of the user."""
    user = request.user_info
    given = annotations_of(obj)
    if user.username in rules.controllers and given.get(USER_ANNOTATION):
        return {}
    return {USER_ANNOTATION: user.username, GROUPS_ANNOTATION: groups_value(user.groups)}


def _set(obj: Object, part: str, wanted: dict[str, str]) -> list[Object]:
    """Operations that give `metadata.labels` or `metadata.annotations` the wanted values."""
    present = labels_of(obj) if part == "labels" else annotations_of(obj)
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    if not changed:
        return []
    if not present:
        return [{"op": "add", "path": f"/metadata/{part}", "value": changed}]
    return [{"op": "add", "path": f"/metadata/{part}/{pointer(key)}", "value": value} for key, value in changed.items()]


def pointer(key: str) -> str:
    """A key as one step of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
