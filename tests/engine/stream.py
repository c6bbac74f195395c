"""A stream of small jobs that never ends, past a gang: how the engine serves it, on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from queue_manager.engine.configuration import Configuration, Node
from queue_manager.engine.decision import Plan
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import MICROSECONDS, PodGroup, PodSet, TopologyMode, TopologyRequest, Workload

MINUTE = 60 * MICROSECONDS


def job(uid: str, queue: str, created: int, gpus: int, longest: int = 0, pods: int = 1, level: str = "") -> Workload:
    """A job of `pods` pods with `gpus` each; `longest` is its maximum run time."""
    request = TopologyRequest(TopologyMode.REQUIRED, level) if level else None
    group = PodGroup("main", (PodSet("main", pods, {"gpu": gpus}, topology=request),))
    return Workload(uid, "ns", uid, queue, created, (group,), max_run_time=longest)


@dataclass
class Stream:
    """`backlog` small jobs always wait; each runs for a random time up to its maximum run time, then ends."""

    configuration: Configuration
    nodes: list[Node]
    small: Callable[[random.Random, str, int], Workload]
    seed: int
    backlog: int = 5
    engine: Engine = field(default_factory=Engine)
    now: int = 1000 * MINUTE
    running: dict[str, int] = field(default_factory=dict)
    limit_ends: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    started: dict[str, int] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    busy: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._number = 0
        self._ends: list[tuple[int, str]] = []
        self._workloads: dict[str, Workload] = {}
        self.engine.configure(self.configuration)
        for node in self.nodes:
            self.engine.upsert_node(node)

    def submit(self, workload: Workload) -> None:
        self._workloads[workload.uid] = workload
        self.waiting.add(workload.uid)
        self.engine.upsert_workload(workload)

    def step(self) -> Plan:
        """Refills the backlog, plans, then goes on to the next end or wake-up."""
        while len(self.waiting) < self.backlog:
            self._number += 1
            self.submit(self.small(self.random, f"s{self._number:06}", self.now))
        plan = self.engine.plan(self.now)
        self.plans.append(plan)
        assert not plan.evictions
        for admission in plan.admissions:
            self._start(self._workloads[admission.uid], admission.admitted)
        before = self.now
        times = [self._ends[0][0]] if self._ends else []
        wake = self.engine.wake_at()
        if wake is not None and wake > self.now:
            times.append(wake)
        self.now = max(self.now + 1, min(times))
        self.busy += (self.now - before) * sum(self._gpus(uid) for uid in self.running)
        while self._ends and self._ends[0][0] <= self.now:
            _, uid = heapq.heappop(self._ends)
            del self.running[uid]
            self.engine.evict(uid)
            self.engine.remove_workload(uid)
        return plan

    def _gpus(self, uid: str) -> int:
        return sum(p.count * p.requests.get("gpu", 0) for p in self._workloads[uid].pod_sets)

    def _start(self, workload: Workload, at: int) -> None:
        self.waiting.discard(workload.uid)
        self.started[workload.uid] = at
        longest = workload.max_run_time or 10 * MINUTE
        end = at + self.random.randint(longest // 2, longest)
        self.running[workload.uid] = end
        self.limit_ends[workload.uid] = at + longest
        heapq.heappush(self._ends, (end, workload.uid))
