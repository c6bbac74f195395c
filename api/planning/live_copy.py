"""A copy of the live state that is kept from plan to plan: each look reads only what has changed since the one before.

What another configuration does is played in a process of its own (`worker.py`). The engine here only plays what happens
without it, which is taken back and remembered for as long as nothing changes: so it knows what an engine knows that was
told everything a moment ago.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from queue_manager.config.compiled import Compiled, compile_objects
from queue_manager.config.known import KnownObjects
from queue_manager.engine.configuration import History
from queue_manager.engine.engine import Engine
from queue_manager.store.events import CONFIGURATION, WORKLOAD
from queue_manager.store.records import ENDED, ConfigObject, NodeRow, WorkloadRow
from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store
from queue_manager.store.times import EPOCH, to_microseconds

from .effects import Baseline, Question, baseline_of, is_steady, question_of
from .live import Live, add_nodes, tell

MOST_ANEW = 5000
"""Workloads up to which those that have changed are read by name; more are read with all others, unless these are
more."""
AT_ONCE = 1000
"""Events that are caught up with in one go, before somebody who waits has a turn."""


class LiveCopy:
    """Rows, nodes and labels as the store has them, and an engine that was told of them under `compiled`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events = RequestStore(store.engine)
        self._seen: int | None = None
        self._known = KnownObjects()
        self._rows: dict[str, WorkloadRow] = {}
        self._untold: set[str] = set()
        self._nodes: dict[str, NodeRow] = {}
        self._live = Live((), (), EPOCH)
        self._engine = Engine()
        self._compiled = Compiled()
        self._namespaces: Mapping[str, Mapping[str, str]] | None = None
        self._objects: tuple[int, Sequence[ConfigObject]] = (0, ())
        self._current = compile_objects(())
        self._baseline: tuple[Compiled, Baseline] | None = None
        self._prepared_for = 0

    def current(self, revision: int, objects: Sequence[ConfigObject]) -> Compiled:
        """The configuration of a revision; compiled once."""
        if self._objects != (revision, objects):
            self._current = self.compiled(objects, revision)
            self._objects = (revision, objects)
        return self._current

    def compiled(self, objects: Sequence[ConfigObject], revision: int) -> Compiled:
        """A configuration that most likely has much in common with the one before."""
        return self._known.compiled(objects, revision)

    def newest(self) -> Compiled:
        """The configuration of the newest revision."""
        if self._store.current_revision() != self._objects[0]:
            self.current(*self._store.load_configuration())
        return self._current

    def follow(self, now: datetime) -> None:
        """Takes over what has changed, so that the next plan finds little that is new, and remembers what happens
        without any change if that is the same when it is asked for."""
        current = self.newest()
        question = question_of(current, current, self.look(now))
        self._prepare(question)
        if is_steady(current):
            self.baseline(question)

    def _prepare(self, question: Question) -> None:
        self._prepared_for = len(self._rows)
        self.engine(question.played_before)

    def catch_up(self) -> bool:
        """Takes over workloads and revisions that events tell of, which costs as much as there are events; whether
        there may be more. What they do not tell of is left to the next look."""
        found = [] if self._seen is None else self._events.events_after(self._seen, AT_ONCE)
        if not found:
            return False
        read = self._store.get_workloads({event.body["uid"] for event in found if event.type == WORKLOAD})
        self._take(read, ())
        self._seen = found[-1].id
        if self._is_another_question() or any(event.type == CONFIGURATION for event in found):
            current = self.newest()
            self._live = replace(self._live, rows=list(self._rows.values()))
            self._prepare(question_of(current, current, self._live))
        else:
            self._tell(self._compiled, self._live)
        return len(found) == AT_ONCE

    def _is_another_question(self) -> bool:
        """Whether there are so many more or fewer workloads than before that the engine may be asked otherwise
        (`question_of`): then it has to sort them all anew, which takes the longer the more there are."""
        return not self._prepared_for // 2 <= len(self._rows) <= 2 * self._prepared_for

    def look(self, now: datetime, history: History | None = None) -> Live:
        """What the store says now; `history` are the rules by which the past counts, if it does."""
        self._read_rows()
        past: Mapping[str, Mapping[str, int]] = {}
        if history is not None:
            spans = (timedelta(microseconds=history.half_life), timedelta(microseconds=history.at_once))
            past = self._store.past_usage(now, *spans)
        rows = [self._rows[uid] for uid in sorted(self._rows)]
        self._live = Live(rows, self._store.load_nodes(), now, self._store.load_namespaces(), past)
        return self._live

    def _read_rows(self) -> None:
        self._seen = self._events.known_events().last  # first: what comes meanwhile is read twice, not never
        versions = self._store.workload_versions()
        known = self._rows
        changed = [uid for uid, version in versions.items() if uid not in known or known[uid].version != version]
        gone = known.keys() - versions.keys()
        if len(changed) > max(MOST_ANEW, len(versions) // 2):
            read = self._store.load_workloads()
            gone = known.keys() - {row.uid for row in read}
        else:
            read = self._store.get_workloads(changed)
        self._take(read, gone)

    def _take(self, read: Collection[WorkloadRow], gone: Collection[str]) -> None:
        for row in read:
            old = self._rows.get(row.uid)
            if row.state in ENDED:  # since its version was read
                self._rows.pop(row.uid, None)
            elif old is None or old.version != row.version:
                self._rows[row.uid] = row
            else:
                continue
            self._untold.add(row.uid)
        for uid in gone:
            del self._rows[uid]
            self._untold.add(uid)

    def engine(self, compiled: Compiled) -> Engine:
        """The engine, told of what the last look saw, under a configuration."""
        before, live = self._compiled, self._live
        if compiled.configuration != before.configuration:
            self._baseline = None
            self._engine.configure(compiled.configuration)
        self._tell_nodes(live.nodes)
        if compiled.priority_classes != before.priority_classes or live.namespaces != self._namespaces:
            self._untold.update(self._rows)
        self._tell(compiled, live)
        self._compiled, self._namespaces = compiled, live.namespaces
        if compiled.configuration.history is not None and live.past_usage:
            self._baseline = None
            self._engine.restore_history(live.past_usage, to_microseconds(live.now))
        return self._engine

    def baseline(self, question: Question) -> Baseline:
        """What happens without the change, for the engine as it was made for this question."""
        kept, now = self._baseline, to_microseconds(self._live.now)
        if kept is None or kept[0] is not question.before or not kept[1].holds(now):
            kept = self._baseline = question.before, baseline_of(question, self._live, self._engine)
        return kept[1]

    def _tell(self, compiled: Compiled, live: Live) -> None:
        if self._untold:
            self._baseline = None
        for uid in sorted(self._untold):
            self._engine.remove_workload(uid)
            row = self._rows.get(uid)
            if row is not None:
                tell(self._engine, row, live, compiled)
        self._untold.clear()

    def _tell_nodes(self, nodes: Sequence[NodeRow]) -> None:
        now = {node.name: node for node in nodes}
        if now != self._nodes:
            self._baseline = None
        for name in self._nodes.keys() - now.keys():
            self._engine.remove_node(name)
        add_nodes(self._engine, [node for name, node in now.items() if self._nodes.get(name) != node])
        self._nodes = now
