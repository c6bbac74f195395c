"""Which slot a pod of a pinned pod set gets, and what is written to it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.port import Object
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import DomainCount
from queue_manager.kinds.gates import GATE, INDEX_LABEL, JOB_INDEX_LABEL, SLOT, TOPOLOGY_GATE, release_to
from queue_manager.kinds.pins import pinned_affinity, place_of
from queue_manager.kinds.slots import Place, Slots, _Table, seating, slots_of

LEVELS = ("rack", HOSTNAME)
OTHER_GATE = {"name": "example.com/other"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def slots(*hosts: str, replica_size: int = 0) -> Slots:
    """One slot on each of these hosts."""
    return slots_of(LEVELS, [DomainCount(("r", host), 1) for host in hosts], replica_size)


def pod(name: str, *, index: int | None = None, replica: int | None = None, node: str = "", slot: int | None = None,
        gated: bool | None = None, phase: str = "Pending", going: bool = False, **metadata: Any) -> Object:  # fmt: skip
    """A pod; one without node and slot waits at our gate."""
    labels = {} if index is None else {INDEX_LABEL: str(index)}
    labels |= {} if replica is None else {JOB_INDEX_LABEL: str(replica)}
    held = gated if gated is not None else not node and slot is None
    spec: dict[str, Any] = {"schedulingGates": [{"name": TOPOLOGY_GATE}]} if held else {}
    if node:
        spec["nodeName"] = node
    whole = {"name": name, "namespace": "ns", "uid": name, "labels": labels, "resourceVersion": "7", **metadata}
    if slot is not None:
        whole["annotations"] = {SLOT: str(slot)}
    if going:
        whole["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": whole, "spec": spec, "status": {"phase": phase}}


def where(obj: Object) -> Place | None:
    """Nodes are called as their host label says."""
    return place_of(obj, (HOSTNAME,), lambda name: {HOSTNAME: name})


def given(found: Slots, *pods: Object, known: dict[str, int] | None = None) -> dict[str, int]:
    return dict(seating(found, pods, known or {}, where).given)


def test_the_index_of_a_pod_is_its_slot_whatever_comes_first() -> None:
    assert given(slots("a", "b", "c"), pod("z", index=0), pod("x", index=2)) == {"z": 0, "x": 2}


def test_ranks_count_through_the_child_jobs_of_a_replicated_job() -> None:
    pods = [pod("p", replica=1, index=0), pod("q", replica=0, index=1), pod("r", replica=1, index=1)]
    assert given(slots("a", "b", "c", "d", replica_size=2), *pods) == {"q": 1, "p": 2, "r": 3}


def test_slots_are_given_in_the_order_of_ranks_whatever_was_made_first() -> None:
    """Where fewer may be let through than wait, the lowest ranks are."""
    made = [(1, 1), (0, 1), (1, 0), (0, 0)]
    pods = [
        pod(f"{3 - i}", replica=replica, index=index, creationTimestamp=f"2026-01-01T00:00:0{i}Z")
        for i, (replica, index) in enumerate(made)
    ]
    assert list(given(slots("a", "b", "c", "d", replica_size=2), *pods).values()) == [0, 1, 2, 3]


def test_pods_without_an_index_take_free_slots_the_oldest_first() -> None:
    young = pod("a", creationTimestamp="2026-01-01T00:00:09Z")
    old = pod("z", creationTimestamp="2026-01-01T00:00:01Z")
    assert given(slots("a", "b", "c"), young, old, pod("n", node="b", slot=1)) == {"z": 0, "a": 2}


def test_a_pod_made_anew_gets_its_own_slot_back_once_the_one_before_has_ended() -> None:
    three = slots("a", "b", "c")
    going = pod("old", index=1, node="b", slot=1, going=True)
    found = seating(three, [going, pod("new", index=1)], {}, where)
    assert (found.given, [p["metadata"]["name"] for p in found.waits], found.surplus) == ({}, ["new"], ())
    ended = pod("old", index=1, node="b", slot=1, phase="Failed")
    assert given(three, ended, pod("new", index=1)) == {"new": 1}


def test_a_slot_of_a_pod_without_index_is_taken_until_the_pod_is_gone() -> None:
    pods = [pod("p", node="a", slot=0, going=True), pod("q", node="b", slot=1), pod("new")]
    found = seating(slots("a", "b"), pods, {}, where)
    assert (found.given, [p["metadata"]["name"] for p in found.waits]) == ({}, ["new"])
    assert given(slots("a", "b"), *pods[1:]) == {"new": 0}


class Looks(list[int]):
    """Slots of a block, counted as they are gone through."""

    count = 0

    def __iter__(self) -> Iterator[int]:
        for slot in super().__iter__():
            Looks.count += 1
            yield slot


@pytest.mark.parametrize("going", [True, False], ids=["waits", "surplus"])
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed"])
def test_many_pods_that_get_no_slot_do_not_each_go_through_all_slots(
    monkeypatch: pytest.MonkeyPatch, going: bool, indexed: bool
) -> None:
    many = 200
    monkeypatch.setattr(_Table, "block", lambda table, replica: Looks(range(len(table.slots.places))))
    monkeypatch.setattr(Looks, "count", 0)
    hosts = [str(n) for n in range(many)]
    old = [pod(f"o{n}", index=n if indexed else None, node=hosts[n], slot=n, going=going) for n in range(many)]
    new = [pod(f"n{n}", index=n + (0 if going else many) if indexed else None) for n in range(many)]
    found = seating(slots(*hosts), [*old, *new], {}, where)
    assert (len(found.waits), len(found.surplus)) == ((many, 0) if going else (0, many))
    assert Looks.count <= 4 * many


def test_a_pod_for_which_there_is_no_slot_is_surplus() -> None:
    found = seating(slots("a"), [pod("p", node="a", slot=0), pod("new")], {}, where)
    assert (found.given, [p["metadata"]["name"] for p in found.surplus]) == ({}, ["new"])


def test_what_this_process_gave_is_taken_before_the_caches_show_it() -> None:
    pods = [pod("p"), pod("q")]
    assert given(slots("a", "b"), *pods, known={"p": 1}) == {"q": 0}


def test_completions_that_follow_each_other_share_the_slots_of_the_width() -> None:
    """Of 5 completions 2 run at a time: 0 is done, 1 runs, 2 is new."""
    two = slots("a", "b")
    assert given(two, pod("d", index=0, node="a", slot=0, phase="Succeeded"), pod("r", index=1, node="b", slot=1),
                 pod("n", index=2)) == {"n": 0}  # fmt: skip
    # 2 runs in slot 0 by now; 1 failed and comes again, then 0.
    assert given(two, pod("n", index=2, node="a", slot=0), pod("r", index=1)) == {"r": 1}
    assert given(two, pod("n", index=2, node="a", slot=0), pod("again", index=0)) == {"again": 1}


def test_replicas_keep_to_their_own_slots() -> None:
    four = slots("a", "b", "c", "d", replica_size=2)
    assert given(four, pod("p", replica=1, index=2), pod("q", replica=0, index=5)) == {"q": 0, "p": 2}
    found = seating(four, [pod(str(n), replica=1, index=n) for n in (0, 1, 2)], {}, where)
    assert (dict(found.given), len(found.surplus)) == ({"0": 2, "1": 3}, 1)


def test_replicas_that_had_finished_before_leave_their_slots_to_those_with_higher_numbers() -> None:
    """Of 4 replicas 0 and 2 had succeeded when the JobSet was admitted again: the slots are those of 1 and 3."""
    four = slots("a", "b", "c", "d", replica_size=2)
    last = [pod("p", replica=3, index=0), pod("q", replica=3, index=1)]
    assert given(four, pod("r", replica=1, index=1), *last) == {"r": 3, "p": 0, "q": 1}
    # Those of one replica stay together, whoever comes first, and come back to where they were.
    assert given(four, *last) == {"p": 0, "q": 1}
    through = pod("q", replica=3, index=1, node="b", slot=1)
    assert given(four, through, pod("new", replica=3, index=0), pod("r", replica=1, index=0)) == {"r": 2, "new": 0}
    found = seating(four, [through, pod("r", replica=1, index=0), pod("back", replica=2, index=0)], {}, where)
    assert [p["metadata"]["name"] for p in found.surplus] == ["back"]


def test_lost_places_are_free_for_others_while_their_old_pods_end() -> None:
    """Slot 1 has moved from node b to node x; the pod on b is still there, terminating for ever."""
    moved = slots("a", "x", "c")
    lost = pod("old", index=1, node="b", slot=1, going=True)
    assert given(moved, lost, pod("new", index=1), pod("p", index=0, node="a", slot=0)) == {"new": 1}


def test_a_pod_that_runs_on_where_its_slot_was_keeps_others_from_the_slot() -> None:
    moved = slots("a", "x")
    found = seating(moved, [pod("old", index=1, node="b", slot=1), pod("new", index=1)], {}, where)
    assert found.given == {}


def test_after_an_elastic_job_has_shrunk_pods_have_the_slots_of_the_places_where_they_are() -> None:
    """Before: a a b b; one pod on each node has ended."""
    pods = [pod("p", node="a", slot=1), pod("q", node="b", slot=3), pod("new")]
    assert given(slots("a", "b"), *pods) == {}
    assert given(slots("a", "b", "b"), *pods) == {"new": 2}


def test_a_pod_sent_to_its_node_and_not_bound_yet_counts_there() -> None:
    sent = pod("p", slot=3)
    sent["spec"]["affinity"] = pinned_affinity(None, (HOSTNAME,), ("b",), lambda host: host)
    assert given(slots("a", "b"), sent, pod("new")) == {"new": 0}


def test_no_two_pods_get_one_slot_whatever_happens() -> None:
    """Random lives of pods: at any time who was let through and has not ended has a slot for itself."""
    for seed in range(60):
        chance = Random(seed)
        hosts = [chance.choice("abc") for _ in range(6)]
        found = slots(*hosts)
        indexed, pods, serial = chance.random() < 0.5, [], 0
        for _ in range(40):
            alive = [p for p in pods if p["status"]["phase"] == "Pending"]
            ranks = {
                p["metadata"]["labels"].get(INDEX_LABEL) for p in alive if not p["metadata"].get("deletionTimestamp")
            }
            what = chance.random()
            if what < 0.5:
                free = [n for n in range(6) if str(n) not in ranks]
                if len(alive) < 6 and free:
                    serial += 1
                    pods.append(pod(f"p{serial}", index=chance.choice(free) if indexed else None))
            elif what < 0.7 and alive:
                chance.choice(alive)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            elif what < 0.8 and alive:
                chance.choice(alive)["status"]["phase"] = "Failed"
            else:
                for name, slot in given(found, *chance.sample(pods, len(pods))).items():
                    [one] = [p for p in pods if p["metadata"]["name"] == name]
                    one["metadata"]["annotations"] = {SLOT: str(slot)}
                    one["spec"] = {"nodeName": hosts[slot]}
            through = [p for p in pods if p["status"]["phase"] == "Pending" and p["spec"].get("nodeName")]
            taken = [p["metadata"]["annotations"][SLOT] for p in through]
            assert len(taken) == len(set(taken)), f"seed {seed}"
            if indexed:
                assert all(p["metadata"]["annotations"][SLOT] == p["metadata"]["labels"][INDEX_LABEL] for p in through)


# --- what is written ------------------------------------------------------------------------------------------------


def test_one_write_names_the_node_and_the_slot_and_takes_our_gates_off() -> None:
    waiting = pod("p", index=2, annotations={"example.com/a": "b"})
    waiting["spec"]["schedulingGates"] = [{"name": GATE}, OTHER_GATE, {"name": TOPOLOGY_GATE}]
    affinity = pinned_affinity(None, (HOSTNAME,), ("h2",), lambda host: f"node-{host}")
    assert release_to(waiting, 2, affinity).body == [
        {"op": "test", "path": "/metadata/uid", "value": "p"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/annotations/queue-manager.io~1slot", "value": "2"},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-h2"]}]}]}}}},
        {"op": "test", "path": "/spec/schedulingGates/2/name", "value": TOPOLOGY_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/2"},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]  # fmt: skip


def test_a_pod_without_annotations_gets_the_map() -> None:
    operations = release_to(pod("p"), 0, {}).body
    assert {"op": "add", "path": "/metadata/annotations", "value": {SLOT: "0"}} in operations


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        # Each term is an alternative: ours must hold in all of them, whatever else they ask.
        (
            [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}, {"matchFields": [{"key": "metadata.name"}]}],
            [
                {"matchExpressions": [{"key": "z", "operator": "Exists"}], "matchFields": ["OURS"]},
                {"matchFields": [{"key": "metadata.name"}, "OURS"]},
            ],
        ),
        # The API allows no change of an empty term, which matches nothing.
        (
            [{}, {"matchExpressions": [{"key": "z", "operator": "Exists"}]}],
            [{}, {"matchExpressions": [{"key": "z", "operator": "Exists"}], "matchFields": ["OURS"]}],
        ),
        ([{}], [{}]),
    ],
)
def test_required_terms_that_are_there_get_ours_added(terms: list[Any], expected: list[Any]) -> None:
    ours = {"key": "metadata.name", "operator": "In", "values": ["h"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "y", "operator": "Exists"}]}}]
    before = {
        "podAntiAffinity": {"x": 1},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            REQUIRED: {"nodeSelectorTerms": terms},
        },
    }
    after = pinned_affinity(before, (HOSTNAME,), ("h",), lambda host: host)
    found = after["nodeAffinity"].pop(REQUIRED)["nodeSelectorTerms"]
    assert found == [
        {field: [ours if entry == "OURS" else entry for entry in entries] for field, entries in term.items()}
        for term in expected
    ]
    assert after["nodeAffinity"] == {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    assert after["podAntiAffinity"] == {"x": 1}
    assert before["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms


def test_where_hosts_are_no_level_the_labels_of_all_levels_are_required_and_read_back() -> None:
    found = slots_of(("block", "rack"), [DomainCount(("b1", "r1"), 2)], 0)
    assert (found.levels, found.places) == (("block", "rack"), (("b1", "r1"), ("b1", "r1")))
    sent = pod("p")
    sent["spec"]["affinity"] = pinned_affinity(None, found.levels, found.places[0], lambda host: host)
    [term] = sent["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [(e["key"], e["values"]) for e in term["matchExpressions"]] == [("block", ["b1"]), ("rack", ["r1"])]
    assert place_of(sent, found.levels, lambda name: None) == ("b1", "r1")
