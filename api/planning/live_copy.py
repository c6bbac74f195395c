"""A copy of the live state that is kept from plan to plan: each look reads only what has changed since the one before.

What is played on it is played in a process of its own (`worker.py`), so the engine here has never planned anything: it
knows what an engine knows that was told everything a moment ago.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from queue_manager.config.compiled import Compiled, compile_objects
from queue_manager.engine.configuration import History
from queue_manager.engine.engine import Engine
from queue_manager.store.records import ENDED, ConfigObject, NodeRow, WorkloadRow
from queue_manager.store.store import Store
from queue_manager.store.times import EPOCH, to_microseconds

from .effects import question_of
from .live import Live, add_nodes, tell

MOST_ANEW = 5000
"""Workloads up to which those that have changed are read by name; more are read with all others."""


class LiveCopy:
    """Rows, nodes and labels as the store has them, and an engine that was told of them under `compiled`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, WorkloadRow] = {}
        self._untold: set[str] = set()
        self._nodes: dict[str, NodeRow] = {}
        self._live = Live((), (), EPOCH)
        self._engine = Engine()
        self._compiled = Compiled()
        self._namespaces: Mapping[str, Mapping[str, str]] | None = None
        self._objects: tuple[int, Sequence[ConfigObject]] = (0, ())
        self._current = compile_objects(())

    def compiled(self, revision: int, objects: Sequence[ConfigObject]) -> Compiled:
        """The configuration of a revision; compiled once."""
        if self._objects != (revision, objects):
            self._current = compile_objects(objects, revision)
            self._objects = (revision, objects)
        return self._current

    def follow(self) -> None:
        """Takes over what has changed, so that the next plan finds little that is new."""
        if self._store.current_revision() != self._objects[0]:
            self.compiled(*self._store.load_configuration())
        live = self.look(EPOCH)
        self.engine(question_of(self._current, self._current, live).played_before)

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
        versions = self._store.workload_versions()
        known = self._rows
        changed = [uid for uid, version in versions.items() if uid not in known or known[uid].version != version]
        gone = known.keys() - versions.keys()
        if len(changed) > MOST_ANEW:
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
            self._engine.configure(compiled.configuration)
        self._tell_nodes(live.nodes)
        if compiled.priority_classes != before.priority_classes or live.namespaces != self._namespaces:
            self._untold.update(self._rows)
        for uid in sorted(self._untold):
            self._engine.remove_workload(uid)
            row = self._rows.get(uid)
            if row is not None:
                tell(self._engine, row, live, compiled)
        self._untold.clear()
        self._compiled, self._namespaces = compiled, live.namespaces
        if compiled.configuration.history is not None and live.past_usage:
            self._engine.restore_history(live.past_usage, to_microseconds(live.now))
        return self._engine

    def _tell_nodes(self, nodes: Sequence[NodeRow]) -> None:
        now = {node.name: node for node in nodes}
        for name in self._nodes.keys() - now.keys():
            self._engine.remove_node(name)
        add_nodes(self._engine, [node for name, node in now.items() if self._nodes.get(name) != node])
        self._nodes = now
