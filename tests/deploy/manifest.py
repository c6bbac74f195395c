"""Reads deploy/install.yaml, and evaluates its RBAC as the API server does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "deploy" / "install.yaml"
NAMESPACE = "queue-manager"


@cache
def objects() -> tuple[Object, ...]:
    """Every object of the manifest."""
    return tuple(yaml.safe_load_all(INSTALL.read_text()))


def of_kind(kind: str) -> dict[str, Object]:
    """The objects of one kind by name."""
    return {obj["metadata"]["name"]: obj for obj in objects() if obj["kind"] == kind}


class Call(NamedTuple):
    """One request to the API server as RBAC sees it. `name` is "" for create and for unnamed lists."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Rule(NamedTuple):
    """One rule of a role that a service account holds; `namespace` is "" when it holds everywhere."""

    role: str
    index: int
    namespace: str
    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str]

    def allows(self, call: Call) -> bool:
        """Whether the rule permits the call."""
        return (
            (not self.namespace or self.namespace == call.namespace)
            and call.group in self.groups
            and call.resource in self.resources
            and call.verb in self.verbs
            and (not self.names or call.name in self.names)
        )


def rules_of(account: str) -> list[Rule]:
    """All rules that the service account holds by its bindings."""
    found = []
    for binding in objects():
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        if not any(subject["name"] == account for subject in binding["subjects"]):
            continue
        role = of_kind(binding["roleRef"]["kind"])[binding["roleRef"]["name"]]
        namespace = binding["metadata"].get("namespace", "")
        for index, rule in enumerate(role["rules"]):
            parts = (frozenset(rule.get(key, ())) for key in ("apiGroups", "resources", "verbs", "resourceNames"))
            found.append(Rule(f"{role['kind']} {role['metadata']['name']}", index, namespace, *parts))
    return found
