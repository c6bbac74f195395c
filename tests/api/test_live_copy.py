"""The copy of the live state that is kept from plan to plan: what it answers is what a fresh one answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from api.planning.effects import Baseline, question_of
from api.planning.live_copy import LiveCopy
from api.planning.worker import Planner, work_out
from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.engine.engine import Engine
from queue_manager.store.records import Change, ConfigObject, LedgerEntry, LedgerState, NodeRow, State
from queue_manager.store.store import Store
from tests.api.world import GPU, SMALL, TIB, commit, configure, document, job, queue, running
from tests.store.builders import NOW, lead

QUEUES = ("nlp", "vision", "ranking")
TOPOLOGY = document(
    "Topology",
    "racks",
    {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
)


class World:
    """A company whose jobs come, start, drain and go at random, and whose configuration changes."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = Random(seed)
        self.documents: list[dict[str, Any]] = [
            TOPOLOGY,
            document("Flavor", "h100", {"topologyName": "racks"} if seed % 2 else {}),
            *SMALL[1:],
        ]
        self._number = 0
        configure(store, self.documents)
        for number in range(6):
            self._node(number)

    def _node(self, number: int) -> None:
        labels = {"block": "block-1", "rack": f"rack-{number // 2}", "kubernetes.io/hostname": f"n{number}"}
        amounts = {GPU: self.random.choice((8, 16)), "cpu": 10**6, "memory": 4 * TIB, "pods": 110}
        node = NodeRow(f"n{number}", labels, (), amounts, {}, self.random.random() < 0.9, False)
        self.store.save_nodes(lead(self.store), [node], [], NOW)

    def objects(self, documents: Sequence[dict[str, Any]]) -> list[ConfigObject]:
        found = stored_objects(parse_objects(documents).objects)
        return [ConfigObject(o.kind, o.name, o.spec, o.namespace, o.labels, o.owner) for o in found]

    def step(self) -> None:
        """Something happens."""
        steps: list[Callable[[], None]] = [self.arrive, self.arrive, self._start, self._drain, self._end, self._hold]
        for step in self.random.choices(steps, k=4):
            step()
        if self.random.random() < 0.3:
            self._node(self.random.randrange(6))
        if self.random.random() < 0.3:
            labels = {f"team-{name}": {"team": self.random.choice(("a", "b"))} for name in QUEUES}
            self.store.save_namespaces(lead(self.store), labels, NOW)
        if self.random.random() < 0.3:
            self.documents = self.changed()
            configure(self.store, self.documents)

    def changed(self) -> list[dict[str, Any]]:
        """A configuration that might take the place of the present one."""
        documents = [each for each in self.documents if each["kind"] not in ("Queue", "PriorityClass")]
        policies = ({}, {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}})
        for name in QUEUES:
            more: dict[str, Any] = dict(self.random.choice(policies))
            if self.random.random() < 0.2:
                more["stopPolicy"] = self.random.choice(("Hold", "HoldAndDrain"))
            if self.random.random() < 0.2:
                more["namespaceSelector"] = {"matchLabels": {"team": "a"}}
            gpus = self.random.choice((8, 24, 64))
            documents.append(queue(name, self.random.choice(("research", "company")), gpus, **more))
        if self.random.random() < 0.8:
            documents.append(document("PriorityClass", "high", {"value": self.random.choice((100, 200))}))
        return documents

    def arrive(self) -> None:
        self._number += 1
        name, label = self.random.choice(QUEUES), self.random.choice(("", "", "high"))
        row = job(f"job-{self._number}", name, self.random.choice((1, 2)), topology=None, local_queue=name)
        row = replace(row, priority_class=label, priority=100 if label else 0)
        commit(self.store, Change(row=replace(row, created_at=NOW - timedelta(minutes=100 - self._number))))

    def _rows(self, *states: State) -> list[Any]:
        return [row for row in self.store.load_workloads() if row.state in states]

    def _start(self) -> None:
        if rows := self._rows(State.WAITING):
            commit(self.store, running(self.random.choice(rows)))

    def _drain(self) -> None:
        if rows := self._rows(State.RUNNING):
            row = self.random.choice(rows)
            ledger = tuple(
                LedgerEntry(cell, amount, LedgerState.DRAINING)
                for cell, amount in row.admission.admission.charge.items()
            )
            commit(self.store, Change(row=replace(row, state=State.DRAINING, after_drain=State.WAITING), ledger=ledger))

    def _end(self) -> None:
        if rows := self._rows(State.DRAINING, State.WAITING):
            row = self.random.choice(rows)
            gone = replace(row, state=State.FINISHED, admission=None, after_drain=None, finished_at=NOW)
            commit(self.store, Change(row=gone, ledger=()))

    def _hold(self) -> None:
        if rows := self._rows(State.WAITING, State.HELD):
            row = self.random.choice(rows)
            held = row.state is State.WAITING
            state, reason = (State.HELD, "HeldByOperator") if held else (State.WAITING, "PendingEvaluation")
            commit(self.store, Change(row=replace(row, state=state, reason=reason)))


@pytest.mark.parametrize("seed", range(4))
async def test_a_kept_copy_answers_what_a_fresh_one_does(store: Store, seed: int):
    world, planner = World(store, seed), Planner(store.engine)
    answers = set()
    try:
        for _ in range(8):
            world.step()
            revision, before = store.load_configuration()
            for _ in range(2):
                after = world.objects(world.changed())
                answer = await planner.effects(before, after, revision, NOW)
                assert answer == work_out(store, before, after, revision, NOW)
                answers.add(answer)
        [_] = planner.processes()
    finally:
        planner.close()
    assert len(answers) > 4


async def test_a_process_that_was_warmed_and_follows_answers_the_same(store: Store):
    world, planner = World(store, 5), Planner(store.engine)
    try:
        planner.warm()
        for _ in range(4):
            world.step()
            planner.warm()
            revision, before = store.load_configuration()
            after = world.objects(world.changed())
            answer = await planner.effects(before, after, revision, NOW)
            assert answer == work_out(store, before, after, revision, NOW)
        [_] = planner.processes()
    finally:
        planner.close()


async def test_what_did_not_change_is_not_read_again(store: Store):
    configure(store)
    commit(store, Change(row=job("one", "nlp", 1)), Change(row=job("two", "nlp", 1)))
    copy = LiveCopy(store)
    [one, two] = copy.look(NOW).rows
    commit(store, Change(row=replace(two, reason="WaitingForQuota")), Change(row=job("three", "nlp", 1)))
    rows = {row.name: row for row in copy.look(NOW).rows}
    assert rows["one"] is one
    assert (rows["two"].reason, rows["two"].version) == ("WaitingForQuota", 2)
    assert set(rows) == {"one", "two", "three"}


async def test_many_changes_are_read_at_once(store: Store, monkeypatch: pytest.MonkeyPatch):
    configure(store)
    monkeypatch.setattr("api.planning.live_copy.MOST_ANEW", 1)
    commit(store, Change(row=job("one", "nlp", 1)), Change(row=job("two", "nlp", 1)))
    copy = LiveCopy(store)
    [one, two] = copy.look(NOW).rows
    ended = [replace(row, state=State.FINISHED, finished_at=NOW) for row in (one, two)]
    commit(
        store,
        *[Change(row=row) for row in ended],
        Change(row=job("three", "nlp", 1)),
        Change(row=job("four", "nlp", 1)),
    )
    assert [row.name for row in copy.look(NOW).rows] == ["four", "three"]


def asked_of(copy: LiveCopy, now: datetime = NOW) -> Baseline:
    """What happens without a change, as a plan of none would ask for it."""
    current = copy.newest()
    question = question_of(current, current, copy.look(now))
    copy.engine(question.played_before)
    return copy.baseline(question)


@pytest.mark.parametrize("seed", range(3))
def test_what_happens_without_a_change_is_the_same_however_often_it_was_played_and_taken_back(store: Store, seed: int):
    world, copy = World(store, seed), LiveCopy(store)
    for _ in range(8):
        world.arrive()
    copy.follow(NOW)
    decided = 0
    for number in range(8):
        world.step() if number % 4 == 3 else world.arrive()
        follow = (lambda: copy.follow(NOW), copy.catch_up, lambda: None)[number % 3]
        follow()
        kept = asked_of(copy)
        assert kept == asked_of(LiveCopy(store))
        assert asked_of(copy) is kept
        decided += len(kept.played.started)
    assert decided > 0


def test_time_alone_may_change_what_happens_without_a_change(store: Store):
    configure(store)
    later = NOW + timedelta(minutes=5)
    commit(store, Change(row=replace(job("one", "nlp", 1, topology=None), not_before=later)))
    copy = LiveCopy(store)
    before = asked_of(copy)
    assert asked_of(copy, later - timedelta(seconds=1)) is before
    after = asked_of(copy, later + timedelta(seconds=1))
    assert (before.played.started, len(after.played.started)) == (set(), 1)
    # An earlier moment is none that the later answer speaks of.
    assert asked_of(copy, NOW) == before


def test_what_events_tell_of_need_not_be_read_at_the_next_look(store: Store, monkeypatch: pytest.MonkeyPatch):
    configure(store)
    commit(store, Change(row=job("one", "nlp", 1)), Change(row=job("two", "nlp", 1)))
    copy = LiveCopy(store)
    assert copy.catch_up() is False  # nothing is known yet that could be caught up with
    [one, two] = copy.look(NOW).rows
    ended = replace(one, state=State.FINISHED, finished_at=NOW)
    commit(store, Change(row=ended), Change(row=replace(two, priority=7)), Change(row=job("three", "nlp", 1)))
    monkeypatch.setattr("api.planning.live_copy.AT_ONCE", 2)
    assert [copy.catch_up(), copy.catch_up(), copy.catch_up()] == [True, False, False]
    asked: list[Any] = []
    monkeypatch.setattr(store, "get_workloads", lambda uids: asked.extend(uids) or [])
    assert {row.name: row.priority for row in copy.look(NOW).rows} == {"two": 7, "three": 0}
    assert asked == []


def refuse(*_: object) -> None:
    raise AssertionError("it was prepared before")


def test_revisions_and_floods_are_prepared_for_as_they_come(store: Store, monkeypatch: pytest.MonkeyPatch):
    configure(store)
    copy = LiveCopy(store)
    copy.follow(NOW)
    monkeypatch.setattr("api.planning.effects.MOST_PAIRS", 0)  # what comes is so much that preemptions are not played
    policy = {"preemption": {"reclaimWithinCohort": "Any"}}
    configure(store, [*SMALL[:2], *(queue(name, "research", 16, **policy) for name in QUEUES)])
    row = job("one", "nlp", 1, topology=None)
    commit(store, running(row), Change(row=job("two", "nlp", 1, topology=None)))
    assert copy.catch_up() is False
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "configure", refuse)
        kept = asked_of(copy)
    assert kept == asked_of(LiveCopy(store))
    assert set(kept.charges) == {row.uid}
