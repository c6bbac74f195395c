"""Plays a scenario: passes of the engine until nothing changes. What is evicted ends at once and queues again."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_manager.engine.decision import Admission, Eviction, Plan, Waiting
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import MICROSECONDS
from queue_manager.simulate.scenario import Job, Scenario

MOST_PASSES = 300
"""A scenario that never comes to rest is cut after so many passes."""
BETWEEN_PASSES = MICROSECONDS


@dataclass(frozen=True, slots=True)
class Ended:
    """An admission that ended: why, and who caused it (uid, "" if nobody did)."""

    uid: str
    reason: str
    message: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass changed. `waiting` are those whose reason was news in this pass."""

    number: int
    now: int
    admissions: tuple[Admission, ...]
    evictions: tuple[Ended, ...]
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a scenario ended. `waiting` explains by uid who waits, as far as the engine was asked; `settled` is False
    where it was cut."""

    scenario: Scenario
    steps: tuple[Step, ...]
    admitted: dict[str, Admission]
    waiting: dict[str, Waiting]
    settled: bool = True
    jobs: dict[str, Job] = field(default_factory=dict)

    @property
    def evictions(self) -> list[Ended]:
        """All evictions, in order."""
        return [ended for step in self.steps for ended in step.evictions]


class Simulation:
    """One scenario on one engine."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.engine = Engine()
        self.now = scenario.now
        self.jobs = {job.workload.uid: job for job in scenario.jobs}
        self.admitted: dict[str, Admission] = {}
        self._over = tuple(
            Ended(uid, job.standing.ends, "it may not run any more")
            for uid, job in self.jobs.items()
            if job.standing.ends
        )
        self._steps: list[Step] = []
        self._start()

    def _start(self) -> None:
        engine = self.engine
        engine.configure(self.scenario.configuration)
        for node in self.scenario.nodes:
            engine.upsert_node(node)
        for uid, job in self.jobs.items():
            if job.admission is None and job.standing.why is not None:
                continue
            engine.upsert_workload(job.workload)
            if job.admission is not None:
                engine.restore_admission(job.admission)
                self.admitted[uid] = job.admission

    def step(self) -> Plan:
        """One pass; what it evicts is gone when the next one begins."""
        plan = self.engine.plan(self.now)
        for found in plan.admissions:
            self.admitted[found.uid] = found
        for eviction in plan.evictions:
            self.admitted.pop(eviction.uid, None)
            self._end(eviction.uid)
        ended = (*self._over, *map(_ended, plan.evictions))
        self._over = ()
        self._steps.append(Step(len(self._steps) + 1, self.now, plan.admissions, ended, tuple(plan.waiting)))
        self.now += BETWEEN_PASSES
        return plan

    def run(self) -> Result:
        """Passes until one changes nothing, or too many.

        Kueue looks at a parked workload again only after some events; at rest all are tried once more, as the shared
        outcomes were found.
        """
        settled, retried = False, self.scenario.configuration.policies.hold_freed_quota
        while not settled and len(self._steps) < MOST_PASSES:
            plan = self.step()
            settled = not (plan.admissions or plan.evictions)
            if settled and not retried:
                self.engine.retry()
                settled, retried = False, True
            elif not settled:
                retried = self.scenario.configuration.policies.hold_freed_quota
        waiting = {}
        for uid in self.jobs:
            if uid not in self.admitted and (found := self.engine.explain(uid, self.now)) is not None:
                waiting[uid] = found
        return Result(self.scenario, tuple(self._steps), dict(self.admitted), waiting, settled, self.jobs)

    def _end(self, uid: str) -> None:
        """Its pods are gone; it queues again unless it may not."""
        self.engine.release(uid)
        if self.jobs[uid].standing.why is not None:
            self.engine.remove_workload(uid)


def _ended(eviction: Eviction) -> Ended:
    return Ended(eviction.uid, eviction.reason.value, eviction.message, eviction.by)
