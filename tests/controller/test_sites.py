"""What hosts of nodes are called, and places by node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queue_manager.cluster.port import Object
from queue_manager.controller.sites import Sites
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import DomainCount, PodSetAssignment


class Nodes(dict[str, Object]):
    """Nodes by name, and what sites make of them."""

    def __init__(self, **hosts: str) -> None:
        super().__init__()
        self.sites = Sites(self.get)
        for name, host in hosts.items():
            self.name(name, host)

    def name(self, name: str, host: str | None) -> None:
        """A node is called so from now on, or is gone."""
        if host is None:
            del self[name]
        else:
            self[name] = {"metadata": {"name": name, "labels": {HOSTNAME: host}}}
        self.sites.look(name, datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1))


def assigned(*hosts: str) -> PodSetAssignment:
    """One pod on each host."""
    domains = tuple(DomainCount((host,), 1) for host in hosts)
    return PodSetAssignment("main", len(hosts), {}, levels=(HOSTNAME,), domains=domains)


def test_a_node_is_found_by_what_its_host_is_called_now() -> None:
    nodes = Nodes(a="a", b="host-b", c="host-c")
    named = nodes.sites.node_named
    assert [named(host) for host in ("a", "host-b", "host-c", "nobody")] == ["a", "b", "c", "nobody"]
    nodes.name("b", "new")
    nodes.name("c", None)
    assert [named(host) for host in ("host-b", "new", "host-c")] == ["host-b", "b", "host-c"]


def test_hosts_that_have_each_others_names_are_told_apart() -> None:
    named = Nodes(a="b", b="a").sites.node_named
    assert (named("a"), named("b")) == ("b", "a")


def test_of_two_nodes_with_one_host_name_the_one_that_is_called_so_itself_has_it() -> None:
    assert Nodes(a="b", b="b").sites.node_named("b") == "b"


def test_places_of_an_assignment_are_counted_once_and_anew_when_a_host_gets_another_name() -> None:
    nodes = Nodes(a="a", b="host-b")
    one = assigned("a", "host-b", "host-b")
    places = nodes.sites.planned("uid", one)
    assert places == {"a": 1, "b": 2}
    assert nodes.sites.planned("uid", one) is places
    assert nodes.sites.planned("uid", assigned("a")) == {"a": 1}
    nodes.name("c", "host-b")
    nodes.name("b", "other")
    assert nodes.sites.planned("uid", one) == {"a": 1, "c": 2}
