"""Whether the caller may make a change of the configuration: all of it or nothing, every refusal at once.

The platform admin of the whole tree may make any. An admin of a node, be they queue admin or platform admin there, may
create, change, move and delete cohorts, queues, local queues, and bindings of roles up to their own below it; the node
itself keeps what it draws from its surroundings, and no admins of nodes within each other enlarge it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from queue_manager.config.compiled import Compiled, to_engine
from queue_manager.config.difference import field_changes
from queue_manager.config.models import ConfigObject, LocalQueue, Queue, RoleBinding
from queue_manager.config.tree import Node, Tree
from queue_manager.store.allowances import Allowance

from ..problems import ProblemError
from .access import Access, NodeKey, access_of, find_node, grants_of, keys_of
from .allowances import cells_of, excess, find_kept, from_kept, greatest, moved_on, to_kept
from .bound import refuse_orphans
from .namespaces import not_theirs
from .roles import ROLES, Role

if TYPE_CHECKING:
    from ..context import Context, Loaded

log = structlog.get_logger(__name__)

OUTER_FIELDS = ("cohort", "parent", "resourceGroups", "fairSharing", "preemption")
"""Of the node that a binding names: what it draws from its surroundings, or takes from others there. Nominal quota may
go from the node to its children and back, within what the subtree has."""
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that the caller may not do."""

    kind: str
    name: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """As errors of a problem document are."""
        return {"kind": self.kind, "name": self.name, "message": self.message}


def check_change(
    context: Context, loaded: Loaded, objects: Sequence[ConfigObject], diff: Sequence[Entry]
) -> list[Allowance] | None:
    """403 with all reasons unless the caller may make the change. What subtrees have after it, None for as before."""
    access = context.access_by(loaded)
    kept = context.store.access.allowances()
    above = access.may_everywhere(Role.PLATFORM_ADMIN)
    touches_tree = any(entry["kind"] in ("Queue", "Cohort") for entry in diff)
    if not diff or (above and not touches_tree):
        return None
    compiled = to_engine(objects, loaded.revision)
    if above:
        refuse_orphans(context, loaded.compiled.tree, compiled.tree)
        return _carried_on(kept, access, loaded.compiled, compiled) if kept else None
    change = _Change(access, context, loaded, objects, compiled)
    refusals = [refusal for entry in diff for refusal in change.refuse(entry)]
    refusals += change.displaced()
    if not refusals and touches_tree:
        kept = _carried_on(kept, access, loaded.compiled, compiled)
        kept, refusals = change.share_out(kept)
    if refusals:
        who = context.caller
        log.info("forbidden", who=who.name, source=who.source.value, address=who.address, refusals=len(refusals))
        detail = f"{len(refusals)} thing(s) of the change are not {who.name}'s to do; nothing was changed"
        raise ProblemError(403, "Forbidden", detail, errors=[each.as_dict() for each in refusals])
    if touches_tree:
        refuse_orphans(context, loaded.compiled.tree, compiled.tree)
        return kept
    return None


class _Change:
    """A change by somebody who is no platform admin."""

    def __init__(
        self, access: Access, context: Context, loaded: Loaded, objects: Sequence[ConfigObject], compiled: Compiled
    ) -> None:
        self._before = access
        self._context = context
        self._loaded = loaded
        self._compiled = compiled
        self._old = {item.key: item for item in loaded.objects}
        self._new = {item.key: item for item in objects}
        bindings = [item for item in objects if isinstance(item, RoleBinding)]
        # Roles as they are now count on the tree as it will be: nobody gives themselves one by the change itself.
        self._after = access_of(grants_of(context.caller, loaded.bindings), compiled.tree, access.hides)
        self._bindings = bindings

    def refuse(self, entry: Entry) -> Iterator[Refusal]:
        """Why an object of the diff is not the caller's to change."""
        kind, name = entry["kind"], entry["name"]
        shown = f"{entry['namespace']}/{name}" if entry["namespace"] else name
        key = (kind, entry["namespace"], name)
        old, new = self._old.get(key), self._new.get(key)
        for message in self._reasons(kind, name, old, new):
            yield Refusal(kind, shown, message)

    def _reasons(self, kind: str, name: str, old: ConfigObject | None, new: ConfigObject | None) -> Iterator[str]:
        if kind in ("Queue", "Cohort"):
            yield from self._node_reasons((kind, name), old, new)
            return
        for item, access in ((old, self._before), (new, self._after)):
            if item is None:
                continue
            keys = keys_of(item, access.tree)
            if not keys:
                yield f"belongs to the whole tree: needs the role {Role.PLATFORM_ADMIN.word} there"
                return
            if not access.may(Role.QUEUE_ADMIN, keys[0]):
                yield f"needs the role {Role.QUEUE_ADMIN.word} at the {keys[0][0].lower()} {keys[0][1]!r}"
            elif isinstance(item, RoleBinding) and not access.may(ROLES[item.spec.role], keys[0]):
                yield f"gives the role {item.spec.role}, which is more than you have there"
        if old is None and isinstance(new, LocalQueue):
            why = not_theirs(self._context, self._before, self._loaded.objects, new.metadata.namespace)
            if why:
                yield why

    def _node_reasons(self, key: NodeKey, old: ConfigObject | None, new: ConfigObject | None) -> Iterator[str]:
        nodes = self._before.tree.queues if key[0] == "Queue" else self._before.tree.cohorts
        # A cohort that is only named by others is there already, with all that is below it.
        exists = key[1] in nodes
        if (exists and not self._before.may(Role.QUEUE_ADMIN, key)) or (
            new is not None and not self._after.may(Role.QUEUE_ADMIN, key)
        ):
            yield f"is outside of where you have the role {Role.QUEUE_ADMIN.word}"
            return
        if self._is_top(key):
            if new is None or old is None:
                yield "is the node that your role is bound to: only somebody above it may create or delete it"
                return
            for path, _, _ in field_changes(old.spec_document(), new.spec_document()):
                if path.split(".")[0].split("[")[0] in OUTER_FIELDS and not path.endswith(".nominalQuota"):
                    yield f"{path}: only somebody above this node may change what it draws from its surroundings"
            return
        parent = self._parent_after(key)
        moves = new is not None and exists and parent not in (nodes[key[1]].parent, "")
        if moves and not self._after.may(Role.QUEUE_ADMIN, ("Cohort", parent)):
            # A role at the node itself goes along with it: that says nothing of where it goes.
            yield f"moves below the cohort {parent!r}: needs the role {Role.QUEUE_ADMIN.word} there"
        if isinstance(new, Queue):
            yield from self._borrowing_reasons(new, old)

    def _parent_after(self, key: NodeKey) -> str:
        nodes = self._compiled.tree.queues if key[0] == "Queue" else self._compiled.tree.cohorts
        return nodes[key[1]].parent if key[1] in nodes else ""

    def _is_top(self, key: NodeKey) -> bool:
        """Whether the caller is admin by a binding to this very node, and not by one above it."""
        if self._before.tops.get(key, 0) < Role.QUEUE_ADMIN:
            return False
        node = (self._before.tree.queues if key[0] == "Queue" else self._before.tree.cohorts)[key[1]]
        return not (node.parent and self._before.may(Role.QUEUE_ADMIN, ("Cohort", node.parent)))

    def _borrowing_reasons(self, new: Queue, old: ConfigObject | None) -> Iterator[str]:
        """To preempt others while borrowing reaches beyond the subtree: nobody gives that who has not got it."""
        wanted = new.spec.preemption.borrow_within_cohort
        if wanted.policy == "Never":
            return
        had = [
            item.spec.preemption.borrow_within_cohort
            for item in self._old.values()
            if isinstance(item, Queue) and self._before.may(Role.QUEUE_ADMIN, ("Queue", item.name))
        ]
        had = [each for each in had if each.policy != "Never"]
        if not had:
            yield "spec.preemption.borrowWithinCohort: no queue of the subtree may preempt while it borrows"
            return
        highest = [each.max_priority_threshold for each in had]
        limit = None if None in highest else max(each for each in highest if each is not None)
        threshold = wanted.max_priority_threshold
        if limit is not None and (threshold is None or threshold > limit):
            yield f"spec.preemption.borrowWithinCohort.maxPriorityThreshold: the subtree has at most {limit}"

    def displaced(self) -> list[Refusal]:
        """Nodes and bindings that the change would take into or out of somebody's subtree without touching them."""
        found = []
        for node in self._after.tree.nodes():
            key = (node.kind, node.name)
            nodes = self._before.tree.queues if node.kind == "Queue" else self._before.tree.cohorts
            mine = self._after.may(Role.QUEUE_ADMIN, key)
            if node.name in nodes and mine != self._before.may(Role.QUEUE_ADMIN, key):
                found.append(Refusal(node.kind, node.name, "would come into your subtree, or leave it"))
            elif node.name not in nodes and not mine:
                found.append(Refusal(node.kind, node.name, "would be a new node outside of your subtree"))
        for binding in self._bindings:
            if self._old.get(binding.key) == binding and binding.spec.node:
                before = find_node(self._before.tree, binding.spec.node)
                after = find_node(self._after.tree, binding.spec.node)
                if before and (after is None or (before.kind, before.name) != (after.kind, after.name)):
                    found.append(Refusal("RoleBinding", binding.name, f"{binding.spec.node!r} would be another node"))
        return found

    def share_out(self, kept: list[Allowance]) -> tuple[list[Allowance], list[Refusal]]:
        """What subtrees have, with those noted that were not yet, and what would be too much: first for the caller's
        own nodes, else for others that the caller is not above. What is there already is not too much."""
        tops = [key for key in sorted(self._before.tops) if self._is_top(key)]
        for key in tops:
            kept = self._noted(kept, key)
        own, others = list[Refusal](), list[Refusal]()
        for each in kept:
            key = (each.kind, each.name)
            was, will = _node(self._before.tree, key), _node(self._after.tree, key)
            if was is None or will is None or _is_above(self._before, was):
                continue
            allowed = greatest(from_kept(each), cells_of(self._loaded.compiled, was))
            found = [Refusal(*key, text) for text in excess(allowed, cells_of(self._compiled, will))]
            (own if key in tops else others).extend(found)
        return kept, own or others

    def _noted(self, kept: list[Allowance], key: NodeKey) -> list[Allowance]:
        """With what the node and those above it have, before anything of it is given away."""
        node, seen = _node(self._before.tree, key), set[NodeKey]()
        while node is not None and key not in seen:  # cohorts of a damaged configuration may form a cycle
            seen.add(key)
            if find_kept(kept, *key) is None:
                known = {(each.kind, each.name): from_kept(each) for each in kept}
                kept = [*kept, to_kept(*key, cells_of(self._loaded.compiled, node, known))]
            key = ("Cohort", node.parent)
            node = _node(self._before.tree, key) if node.parent else None
        return kept


def _carried_on(kept: Sequence[Allowance], access: Access, before: Compiled, after: Compiled) -> list[Allowance]:
    """What is kept, after a change by somebody: who is above a node changes what it has, its own admin does not."""
    found = []
    for each in kept:
        key = (each.kind, each.name)
        was, will = _node(before.tree, key), _node(after.tree, key)
        if will is None:
            continue
        if was is None or not _is_above(access, was):
            found.append(each)
            continue
        old, new = cells_of(before, was), cells_of(after, will)
        found.append(to_kept(*key, moved_on(from_kept(each), old, new)))
    return found


def _is_above(access: Access, node: Node) -> bool:
    if access.may_everywhere(Role.QUEUE_ADMIN):
        return True  # there is nothing above the whole tree that could give it more
    return bool(node.parent) and access.may(Role.QUEUE_ADMIN, ("Cohort", node.parent))


def _node(tree: Tree, key: NodeKey) -> Node | None:
    return (tree.queues if key[0] == "Queue" else tree.cohorts).get(key[1])
