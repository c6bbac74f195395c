"""Where the author of a stop had their role, and so who may end it (docs/decisions/0013)."""

from __future__ import annotations

from queue_manager.config.stops import STRICTNESS, Stop
from queue_manager.engine.configuration import StopPolicy

from ..auth.access import Access, NodeKey, keys_of
from ..auth.authorisation import forbidden
from ..auth.roles import Role
from ..context import Context, Loaded

WHOLE = ""
"""The whole tree, as a stop keeps it."""


def authority_over(context: Context, loaded: Loaded, wanted: Stop, known: Stop | None) -> str | None:
    """What the new stop has for authority: the highest node above what it stops at which its author is operator.
    403 where it loosens one that was set from above the caller; who makes that stricter leaves it where it was."""
    access = context.access_by(loaded)
    if known is None or _may_loosen(access, known):
        return _highest(access, loaded, wanted)
    if STRICTNESS.index(wanted.policy) <= STRICTNESS.index(known.policy):
        raise forbidden(_refusal(context, known))
    return known.authority


def _may_loosen(access: Access, known: Stop) -> bool:
    if access.may_everywhere(Role.OPERATOR) or known.authority is None:
        return True
    kind, _, name = known.authority.partition("/")
    return access.may(Role.OPERATOR, (kind, name))


def _highest(access: Access, loaded: Loaded, stop: Stop) -> str:
    if access.may_everywhere(Role.OPERATOR):
        return WHOLE
    found, key, seen = WHOLE, _node_of(access, loaded, stop), set[NodeKey]()
    while key is not None and key not in seen and access.may(Role.OPERATOR, key):
        seen.add(key)
        found = f"{key[0]}/{key[1]}"
        node = (access.tree.queues if key[0] == "Queue" else access.tree.cohorts).get(key[1])
        key = ("Cohort", node.parent) if node is not None and node.parent else None
    return found


def _node_of(access: Access, loaded: Loaded, stop: Stop) -> NodeKey | None:
    """The queue or cohort whose it is to stop this."""
    if stop.kind in ("Queue", "Cohort"):
        return stop.kind, stop.name
    item = next((item for item in loaded.objects if item.key == stop.subject), None)
    keys = keys_of(item, access.tree) if item is not None else None
    return keys[0] if keys else None


def _refusal(context: Context, known: Stop) -> str:
    kind, _, name = (known.authority or WHOLE).partition("/")
    where = f"at the {kind.lower()} {name!r}" if name else "at the whole tree"
    what = "ends" if known.policy is StopPolicy.HOLD else "ends or loosens"
    return (
        f"{known.kind} {known.name} was stopped ({known.policy.value}) from above: {context.caller.name} needs the "
        f"role {Role.OPERATOR.word} {where}, where whoever stopped it had it; nobody else {what} that"
    )
