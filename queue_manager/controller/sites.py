"""Cluster nodes as the leader sees them: which are lost, who is on which, and what their hosts are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from queue_manager.cluster.port import Object
from queue_manager.controller.node_health import Ailment, NodeWatch
from queue_manager.controller.whereabouts import Whereabouts
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import PodSetAssignment


class Sites:
    """`find` answers a node by name, None when it is not there. `suspects` are workloads on nodes of which something
    has changed since they were last looked at for lost places; `shut` are nodes to which no pod of a workload may be
    let through while it waits for other ones, by uid."""

    def __init__(self, find: Callable[[str], Object | None]) -> None:
        self.find = find
        self.suspects: set[str] = set()
        self.shut: dict[str, frozenset[str]] = {}
        self._watch = NodeWatch()
        self._where = Whereabouts()
        self._named: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._planned: dict[str, dict[str, tuple[PodSetAssignment, Mapping[str, int]]]] = {}

    def look(self, name: str, now: datetime, patience: timedelta) -> frozenset[str]:
        """A node changed, or its time has come: the workloads on it, by uid, which are suspects now."""
        node = self.find(name)
        self._watch.look(name, node, now, patience)
        self.learn(name, node)
        return self.suspect(name)

    def suspect(self, name: str) -> frozenset[str]:
        """Something may have become of who is on the node; answers them, by uid."""
        found = self._where.on(name)
        self.suspects |= found
        return found

    def learn(self, name: str, node: Object | None) -> None:
        """Keeps in mind which nodes' hosts have other names than they; None for a node that is gone."""
        host = _host_of(node) if node is not None else name
        before = self._hosts.pop(name, name)
        if host != name:
            self._hosts[name] = host
        if host == before:
            return
        if self._named.get(before) == name:
            del self._named[before]
        if host != name:
            self._named[host] = name
        self._planned.clear()

    def put(self, uid: str, nodes: set[str]) -> None:
        """The nodes that a workload has pods or places on; none when it has no admission any more."""
        self._where.put(uid, nodes)
        if not nodes:
            self.suspects.discard(uid)
            self.shut.pop(uid, None)
            self._planned.pop(uid, None)

    def due(self, now: datetime) -> set[str]:
        """Nodes that have to be looked at, for they have been silent for long enough."""
        return self._watch.due(now)

    def next(self) -> datetime | None:
        """When there are such nodes."""
        return self._watch.next()

    def lost(self, name: str) -> Ailment | None:
        """Why all pods on a node are lost, None if they are not."""
        return self._watch.lost(name, self.find(name))

    def planned(self, uid: str, assigned: PodSetAssignment) -> Mapping[str, int]:
        """Places of a pod set of a workload by name of node; none where its domains are wider than nodes. Counted once
        for each assignment: it never changes, only another one takes its place."""
        known = self._planned.setdefault(uid, {})
        if assigned.name not in known or known[assigned.name][0] is not assigned:
            known[assigned.name] = assigned, self._count(assigned)
        return known[assigned.name][1]

    def _count(self, assigned: PodSetAssignment) -> Mapping[str, int]:
        found: dict[str, int] = {}
        if assigned.levels[-1:] == (HOSTNAME,):
            for domain in assigned.domains or ():
                name = self.node_named(domain.values[-1])
                found[name] = found.get(name, 0) + domain.count
        return found

    def node_named(self, host: str) -> str:
        """The node with that host name: nearly always it is the node's own name."""
        named = self._named.get(host, host)
        if named == host:
            return host
        own = self.find(host)
        return host if own is not None and _host_of(own) == host else named


def _host_of(node: Object) -> str:
    metadata = node["metadata"]
    return str((metadata.get("labels") or {}).get(HOSTNAME, metadata["name"]))
