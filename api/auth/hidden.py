"""Names of what the caller may not see, for those from whom the rest of the tree is hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from queue_manager.config.models import ConfigObject, LocalQueue, RoleBinding
from queue_manager.config.tree import Node

from .access import Access, token_identity

if TYPE_CHECKING:
    from ..context import Context

Names = tuple[frozenset[str], frozenset[str]]


def hidden_names(context: Context, access: Access) -> Names:
    """Words that mean something hidden, and namespaces that only hidden queues have. What something visible is called,
    too, is no secret, nor are the cohorts above what the caller may see: its paths name them."""
    if access.names is None:
        access.names = _names(access, context.configuration().objects)
    return access.names


def outer(access: Access) -> set[str]:
    """Cohorts above what is visible, by name."""
    found = set[str]()
    for node in access.tree.nodes():
        if access.sees((node.kind, node.name)):
            parent = node.parent
            while parent and parent not in found:
                found.add(parent)
                parent = access.tree.cohorts[parent].parent if parent in access.tree.cohorts else ""
    return found


def _names(access: Access, objects: Iterable[ConfigObject]) -> Names:
    hidden, shown = set[str](), set[str]()
    namespaces = {True: set[str](), False: set[str]()}
    around = outer(access)
    for node in access.tree.nodes():
        seen = access.sees((node.kind, node.name)) or (node.kind == "Cohort" and node.name in around)
        (shown if seen else hidden).update(_called(node))
    for item in objects:
        seen = access.sees_object(item)
        if isinstance(item, LocalQueue):
            namespaces[seen].add(item.metadata.namespace)
            (shown if seen else hidden).add(f"{item.metadata.namespace}/{item.name}")
        elif isinstance(item, RoleBinding):
            called = {token_identity(each.name) if each.kind == "Token" else each.name for each in item.spec.subjects}
            (shown if seen else hidden).update({item.name, *called})
    return frozenset(hidden - shown), frozenset(namespaces[False] - namespaces[True])


def _called(node: Node) -> set[str]:
    return {node.name, node.path}
