"""Configuration: revisions, what they changed, older ones, and two writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from queue_manager.store.records import ConfigObject, Revision, StaleConfiguration
from queue_manager.store.store import Store
from tests.store.builders import NOW


def apply(store: Store, *objects: ConfigObject, **named: Any) -> Revision:
    return store.apply_configuration(
        objects, **{"author": "ada", "reason": "because", "now": NOW, "source": "cli", **named}
    )


def queue(name: str, quota: int, **values: Any) -> ConfigObject:
    return ConfigObject("Queue", name, {"quota": quota, "nested": [1, {"a": None}]}, **values)


def test_objects_read_back_with_the_revision_of_their_last_change(store: Store) -> None:
    assert store.load_configuration() == (0, [])
    local = ConfigObject("LocalQueue", "default", {"queue": "a"}, namespace="team", labels={"x": "y"}, owner="git")
    first = apply(store, queue("a", 1), queue("b", 1), local)
    assert (first.number, first.author, first.reason, first.at) == (1, "ada", "because", NOW)
    apply(store, queue("b", 2))
    revision, objects = store.load_configuration()
    assert revision == 2
    assert [(found.kind, found.name, found.revision) for found in objects] == [
        ("LocalQueue", "default", 1),
        ("Queue", "a", 1),
        ("Queue", "b", 2),
    ]
    assert objects[0].labels == {"x": "y"}
    assert (objects[0].namespace, objects[0].owner) == ("team", "git")


def test_a_revision_tells_what_it_changed(store: Store) -> None:
    apply(store, queue("a", 1), queue("gone", 1))
    second = apply(store, queue("a", 2), queue("new", 1), delete=[("Queue", "", "gone"), ("Queue", "", "never-was")])
    assert [(entry["name"], entry["before"] is None, entry["after"] is None) for entry in second.diff] == [
        ("a", False, False),
        ("gone", False, True),
        ("new", True, False),
    ]
    assert second.diff[0]["before"]["spec"]["quota"] == 1
    assert second.diff[0]["after"]["spec"]["quota"] == 2
    assert store.revisions()[0] == second
    assert [found.number for found in store.revisions(limit=1)] == [2]
    assert [found.number for found in store.revisions(before=2)] == [1]


def test_applying_the_same_again_makes_no_revision(store: Store) -> None:
    assert apply(store).number == 0
    first = apply(store, queue("a", 1))
    assert apply(store, queue("a", 1), delete=[("Queue", "", "unknown")]) == first
    assert len(store.revisions()) == len(store.audit_entries(object="revision/1")) == 1
    assert len(store.audit_entries()) == 2  # the revision and its one object
    assert apply(store, queue("a", 1, owner="git")).number == 2


def test_any_revision_can_be_read_again(store: Store) -> None:
    states = []
    for changes, deleted in (
        ([queue("a", 1)], []),
        ([queue("a", 2), queue("b", 1, labels={"k": "v"})], []),
        ([queue("c", 1)], [("Queue", "", "a")]),
        ([queue("a", 5)], [("Queue", "", "b"), ("Queue", "", "c")]),
    ):
        apply(store, *changes, delete=deleted)
        states.append([(found.name, found.spec, found.labels) for found in store.load_configuration()[1]])
    for number, state in enumerate(states, 1):
        assert [(found.name, found.spec, found.labels) for found in store.configuration_at(number)] == state
    assert store.configuration_at(0) == []
    with pytest.raises(LookupError, match="no revision 5; the newest is 4"):
        store.configuration_at(5)


def test_who_expects_another_revision_is_refused(store: Store) -> None:
    apply(store, queue("a", 1), expected_revision=0)
    with pytest.raises(StaleConfiguration, match=r"made for revision 0 .*the newest is 1"):
        apply(store, queue("a", 2), expected_revision=0)
    assert apply(store, queue("a", 2), expected_revision=1).number == 2


def test_an_object_twice_is_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="Queue /a is there twice"):
        apply(store, queue("a", 1), queue("a", 2))
    with pytest.raises(ValueError, match="twice"):
        apply(store, queue("a", 1), delete=[("Queue", "", "a")])
    assert store.load_configuration() == (0, [])


def test_many_writers_make_one_line_of_revisions(store: Store) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda n: apply(store, queue(f"q{n}", n)).number, range(24))
        assert sorted(found) == list(range(1, 25))
    assert len(store.load_configuration()[1]) == 24


def test_every_revision_is_audited(store: Store) -> None:
    apply(store, queue("a", 1))
    store.audit("grace", "workload.hold", "team/job", None, {"state": "held"}, "api", "on fire", NOW)
    hold, changed, applied = store.audit_entries()
    assert (applied.who, applied.action, applied.object, applied.source) == (
        "ada",
        "configuration.apply",
        "revision/1",
        "cli",
    )
    assert applied.after == {"revision": 1, "objects": 1}
    assert (changed.who, changed.action, changed.object, changed.before) == (
        "ada",
        "configuration.create",
        "Queue/a",
        None,
    )
    assert changed.after is not None
    assert changed.after["spec"]["quota"] == 1
    assert (hold.who, hold.before, hold.after, hold.reason, hold.at) == (
        "grace",
        None,
        {"state": "held"},
        "on fire",
        NOW,
    )
    assert store.audit_entries(object="team/job") == [hold]
    assert store.audit_entries(before=hold.id) == [changed, applied]
