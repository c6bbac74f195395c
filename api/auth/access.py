"""What somebody may do where: their roles, taken down the queue tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from queue_manager.config.models import ConfigObject, LocalQueue, RoleBinding, Subject
from queue_manager.config.tree import Node, Tree

from ..problems import ProblemError, not_found
from .identity import TOKENS, Identity, Source
from .roles import ROLES, Grant, Role

if TYPE_CHECKING:
    from ..context import Context

log = structlog.get_logger(__name__)

NodeKey = tuple[str, str]
"""(kind, name): a cohort and a queue may have one name."""


@dataclass(slots=True)
class Access:
    """Roles of one caller on one tree. `whole` is the role at the whole tree, `at` those at nodes below what the caller
    is bound to, `tops` those at the nodes of the bindings themselves. With `hides`, what lies outside is not shown;
    `names` are what is called so there, once `hidden.hidden_names` was asked."""

    whole: Role | None
    at: Mapping[NodeKey, Role]
    tops: Mapping[NodeKey, Role]
    hides: bool
    tree: Tree = field(repr=False)
    names: tuple[frozenset[str], frozenset[str]] | None = field(default=None, repr=False)

    def role(self, key: NodeKey) -> Role | None:
        """The role at a node, whether it is configured or not."""
        return max((role for role in (self.whole, self.at.get(key)) if role is not None), default=None)

    def anywhere(self) -> Role | None:
        """The greatest role at any node."""
        return max((role for role in (self.whole, *self.tops.values()) if role is not None), default=None)

    def may(self, role: Role, key: NodeKey) -> bool:
        """Whether the caller has at least this role at a node."""
        return (self.role(key) or 0) >= role

    def may_everywhere(self, role: Role) -> bool:
        """Whether the caller has at least this role at the whole tree."""
        return (self.whole or 0) >= role

    @property
    def narrowed(self) -> bool:
        """Whether there is something that the caller may not see."""
        return self.hides and self.whole is None

    def sees(self, key: NodeKey) -> bool:
        """Whether what happens at a node is shown."""
        return not self.narrowed or key in self.at

    def sees_queue(self, name: str) -> bool:
        """Whether workloads of a queue are shown."""
        return self.sees(("Queue", name))

    def visible_queues(self) -> tuple[str, ...] | None:
        """Names of the queues that are shown; None for all."""
        if not self.narrowed:
            return None
        return tuple(sorted(name for kind, name in self.at if kind == "Queue"))

    def sees_object(self, item: ConfigObject) -> bool:
        """Whether a configuration object is shown. What belongs to no node (flavors ...) is shown to everybody."""
        if not self.narrowed:
            return True
        keys = keys_of(item, self.tree)
        return keys is None or any(key in self.at for key in keys)

    def sees_subject(self, kind: str, namespace: str, name: str, objects: Iterable[ConfigObject]) -> bool:
        """The same of an object by its key; of a local queue that is not there any more nothing is known."""
        if not self.narrowed or kind == "Flavor":
            return True
        if kind in ("Queue", "Cohort"):
            return self.sees((kind, name))
        return any(self.sees_object(item) for item in objects if item.key == (kind, namespace, name))


def keys_of(item: ConfigObject, tree: Tree) -> list[NodeKey] | None:
    """The node that an object belongs to: none for what is of the whole tree, None for what is of no node."""
    if item.kind in ("Queue", "Cohort"):
        return [(item.kind, item.name)]
    if isinstance(item, LocalQueue):
        found = tree.find("Queue", item.spec.queue)
        return [("Queue", found.name if found else item.spec.queue)]
    if isinstance(item, RoleBinding):
        node = find_node(tree, item.spec.node) if item.spec.node else None
        return [] if node is None else [(node.kind, node.name)]
    return None


def find_node(tree: Tree, name_or_path: str) -> Node | None:
    """The cohort, else the queue, of a name or path, as a RoleBinding or a token's scope names it."""
    return tree.find("Cohort", name_or_path) or tree.find("Queue", name_or_path)


def granted_node(tree: Tree, grant: Grant) -> Node | None:
    """The node that a grant is for, None where it is not there."""
    if grant.kind:
        return (tree.cohorts if grant.kind == "Cohort" else tree.queues).get(grant.node)
    return find_node(tree, grant.node)


def grants_of(identity: Identity, bindings: Iterable[RoleBinding]) -> tuple[Grant, ...]:
    """The roles of somebody: those that come with the proof, and those of bindings."""
    found = set(identity.scopes)
    for binding in bindings:
        if any(_is(subject, identity) for subject in binding.spec.subjects):
            found.add(Grant(ROLES[binding.spec.role], binding.spec.node))
    return tuple(sorted(found, key=lambda grant: (grant.node, grant.kind, grant.role)))


def _is(subject: Subject, identity: Identity) -> bool:
    # A token speaks for itself alone, never for the user or group that happens to have its name.
    if identity.source is Source.TOKEN:
        return subject.kind == "Token" and identity.name == token_identity(subject.name)
    if identity.source is Source.LOOPBACK:
        return False
    return identity.name == subject.name if subject.kind == "User" else (
        subject.kind == "Group" and subject.name in identity.groups
    )  # fmt: skip


def token_identity(name: str) -> str:
    """Name of who asks with the token of this name."""
    return f"{TOKENS}{name}"


def access_of(grants: Iterable[Grant], tree: Tree, hides: bool) -> Access:
    """Roles at every node that some grant covers. A grant at a node that is not there gives nothing."""
    whole: Role | None = None
    tops: dict[NodeKey, Role] = {}
    at: dict[NodeKey, Role] = {}
    for grant in grants:
        if not grant.node:
            whole = max(whole or grant.role, grant.role)
            continue
        node = granted_node(tree, grant)
        if node is None:
            continue
        key = (node.kind, node.name)
        tops[key] = max(tops.get(key, grant.role), grant.role)
        for below in _subtree(node):
            at[below] = max(at.get(below, grant.role), grant.role)
    return Access(whole, at, tops, hides, tree)


def _subtree(node: Node) -> Iterable[NodeKey]:
    pending, seen = [node], set[NodeKey]()
    while pending:
        each = pending.pop()
        key = (each.kind, each.name)
        if key not in seen:  # cohorts of a damaged configuration may form a cycle
            seen.add(key)
            pending.extend(each.children)
    return seen


def demand_role(context: Context, role: Role, key: NodeKey) -> None:
    """403 unless the caller has at least this role at a node, which no URL names; 404 where they may not see it."""
    if any(grant.role is Role.PLATFORM_ADMIN and not grant.node for grant in context.caller.scopes):
        return
    access = context.access
    if not access.sees(key):
        raise not_found(key[0].lower(), key[1])
    if not access.may(role, key):
        who = context.caller
        log.info("forbidden", who=who.name, source=who.source.value, address=who.address, node=key[1])
        raise ProblemError(
            403, "Forbidden", f"{who.name} needs the role {role.word} at the {key[0].lower()} {key[1]!r}"
        )
