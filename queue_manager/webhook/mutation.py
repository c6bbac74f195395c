"""The mutating decision: a managed job is created suspended and carries who asked for it."""

from __future__ import annotations

from queue_manager.cluster.port import Object
from queue_manager.kinds.annotations import POD_PRIORITY_CLASS
from queue_manager.kinds.kind import PREFIX, QUEUE_LABEL, Kind, Lookup
from queue_manager.webhook.pod_priority import normalised
from queue_manager.webhook.review import Request, Verdict
from queue_manager.webhook.rules import DEFAULT_QUEUE, GROUPS_ANNOTATION, USER_ANNOTATION, Rules
from queue_manager.webhook.scope import annotations_of, labels_of, named_by


def mutate_job(request: Request, obj: Object, kind: Kind, rules: Rules, lookup: Lookup) -> Verdict:
    """The patch for a managed top-level job at its creation. A second call on its result gives no operation."""
    patch = list(kind.suspend_on_create(obj, lookup))
    # Left over where somebody creates a job from the YAML of another one; it would tell about that one.
    stale = [key for key in (PREFIX + "state", PREFIX + "message") if key in annotations_of(obj)]
    patch += [{"op": "remove", "path": f"/metadata/annotations/{pointer(key)}"} for key in stale]
    if named_by(obj, lookup, QUEUE_LABEL) is None:
        # Written down, so that the job stays managed when the namespace's label goes.
        patch += _set(obj, "labels", {QUEUE_LABEL: DEFAULT_QUEUE})
    catalogue = rules.catalogue()
    wanted = _identity(request, obj, rules)
    if catalogue is not None and catalogue.pod_priority_class:
        more, given = normalised(obj, catalogue.pod_priority_class)
        patch += more
        wanted |= {POD_PRIORITY_CLASS: given} if given else {}
    patch += _set(obj, "annotations", wanted)
    return Verdict(patch=patch)


def groups_value(groups: tuple[str, ...]) -> str:
    """Value of the `user-groups` annotation: a comma list; a comma inside a name, usual in directories, is `%2C`."""
    return ",".join(group.replace("%", "%25").replace(",", "%2C") for group in groups)


def _identity(request: Request, obj: Object, rules: Rules) -> dict[str, str]:
    """The wanted annotations of the user."""
    user = request.user_info
    given = annotations_of(obj)
    if given.get(USER_ANNOTATION) and rules.may_name_users(user.username):
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
