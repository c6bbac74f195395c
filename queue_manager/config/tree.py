"""The queue tree of a configuration: parents, paths, cohorts that are only named, cycles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from queue_manager.config.models import Cohort, ConfigObject, Queue

MAX_LEVELS = 32
"""Levels of cohorts that a tree may have; the root is level 1."""


@dataclass(slots=True)
class Node:
    """A cohort or queue in the tree. An `implicit` cohort has no object: it is only named as a parent, as in Kueue.

    `level` is 1 at a root, 0 in or below a cycle.
    """

    kind: str
    name: str
    parent: str = ""
    path: str = ""
    implicit: bool = False
    level: int = 0
    children: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Tree:
    """`roots` and `children` are sorted by path. In or below a cycle a node is below no root. There, and below
    `MAX_LEVELS` cohorts, its path is its name."""

    cohorts: dict[str, Node]
    queues: dict[str, Node]
    roots: list[Node]
    cycles: list[list[str]]

    def nodes(self) -> Iterable[Node]:
        """Cohorts, then queues."""
        yield from self.cohorts.values()
        yield from self.queues.values()

    def find(self, kind: str, name_or_path: str) -> Node | None:
        """A node of this kind ("Cohort" or "Queue") by its name, else by its path."""
        nodes = self.cohorts if kind == "Cohort" else self.queues
        if node := nodes.get(name_or_path):
            return node
        return next((node for node in nodes.values() if node.path == name_or_path), None)

    def queues_below(self, cohort: str) -> list[str]:
        """Names of all queues in the subtree of a cohort, sorted."""
        found: list[str] = []
        pending, seen = [self.cohorts[cohort]] if cohort in self.cohorts else [], set()
        while pending:
            node = pending.pop()
            if node.kind == "Queue":
                found.append(node.name)
            elif node.name not in seen:
                seen.add(node.name)
                pending.extend(node.children)
        return sorted(found)


def build_tree(objects: Iterable[ConfigObject]) -> Tree:
    """The tree of the cohorts and queues among `objects`."""
    cohorts: dict[str, Node] = {}
    queues: dict[str, Node] = {}
    for item in objects:
        if isinstance(item, Cohort):
            cohorts[item.name] = Node("Cohort", item.name, item.spec.parent)
        elif isinstance(item, Queue):
            queues[item.name] = Node("Queue", item.name, item.spec.cohort)
    for node in [*cohorts.values(), *queues.values()]:
        if node.parent and node.parent not in cohorts:
            cohorts[node.parent] = Node("Cohort", node.parent, implicit=True)
    roots = []
    for node in [*cohorts.values(), *queues.values()]:
        if node.parent:
            cohorts[node.parent].children.append(node)
        else:
            roots.append(node)
    tree = Tree(cohorts, queues, sorted(roots, key=lambda node: node.name), _cycles(cohorts))
    _set_paths(tree)
    return tree


def _cycles(cohorts: dict[str, Node]) -> list[list[str]]:
    done: set[str] = set()
    cycles = []
    for start in sorted(cohorts):
        trail: dict[str, int] = {}
        name = start
        while name and name not in done and name not in trail:
            trail[name] = len(trail)
            name = cohorts[name].parent
        if name in trail:
            cycles.append(list(trail)[trail[name] :])
        done.update(trail)
    return cycles


def _own_part(name: str, parent: Node) -> str:
    # `research/nlp` below `research` carries a part of its path in its name already.
    for prefix in (f"{parent.path}/", f"{parent.name}/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _set_paths(tree: Tree) -> None:
    for node in tree.nodes():
        node.path = node.name
    for root in tree.roots:
        root.level = 1
    pending = list(tree.roots)
    while pending:
        node = pending.pop()
        for child in node.children:
            child.level = node.level + 1
            if node.level <= MAX_LEVELS:  # paths of a long chain would be quadratic in size
                child.path = f"{node.path}/{_own_part(child.name, node)}"
        node.children.sort(key=lambda child: (child.path, child.kind))
        pending.extend(node.children)
