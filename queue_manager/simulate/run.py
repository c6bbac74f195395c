"""Plays a scenario: passes of the engine until nothing changes. What is evicted ends at once and queues again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from queue_manager.engine.decision import Admission, Eviction, Plan, Waiting
from queue_manager.engine.engine import Engine
from queue_manager.engine.resize import owner_uid
from queue_manager.engine.workload import MICROSECONDS
from queue_manager.simulate.scenario import Job, Scenario
from queue_manager.simulate.slices import slices_of

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
        self._slices = slices_of(self.jobs.values())
        self._shown = {uid: found.newer.workload.uid for uid, found in self._slices.items()}
        self._start()

    def _start(self) -> None:
        engine = self.engine
        engine.configure(self.scenario.configuration)
        for node in self.scenario.nodes:
            engine.upsert_node(node)
        for uid, job in self.jobs.items():
            if uid in self._shown.values() or (job.admission is None and job.standing.why is not None):
                continue
            grows = self._slices.get(uid)
            engine.upsert_workload(grows.workload if grows is not None else job.workload)
            if job.admission is not None:
                engine.restore_admission(grows.admission if grows is not None else job.admission)
                self.admitted[uid] = job.admission

    def step(self) -> Plan:
        """One pass; what it evicts is gone when the next one begins."""
        plan = self.engine.plan(self.now)
        for found in plan.admissions:
            self.admitted[found.uid] = found
        replaced = tuple(self._replace(found) for found in plan.resizes)
        ended = (*self._over, *(self._ended(eviction) for eviction in plan.evictions))
        for eviction in plan.evictions:
            self._end(eviction.uid)
        self._over = ()
        admissions = (*plan.admissions, *replaced)
        waiting = tuple(replace(found, uid=self._shown.get(found.uid, found.uid)) for found in plan.waiting)
        self._steps.append(Step(len(self._steps) + 1, self.now, admissions, ended, waiting))
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
            settled = not (plan.admissions or plan.evictions or plan.resizes)
            if settled and not retried:
                self.engine.retry()
                settled, retried = False, True
            elif not settled:
                retried = self.scenario.configuration.policies.hold_freed_quota
        waiting = {}
        known = {shown: uid for uid, shown in self._shown.items()}
        for uid in self.jobs:
            if uid not in self.admitted and (found := self.engine.explain(known.get(uid, uid), self.now)) is not None:
                waiting[uid] = found
        return Result(self.scenario, tuple(self._steps), dict(self.admitted), waiting, settled, self.jobs)

    def _replace(self, found: Admission) -> Admission:
        """A running slice has grown: the newer one runs from now on, the older one has finished."""
        older, newer = self._slices.pop(found.uid).older, self.jobs[self._shown[found.uid]]
        why = ("Finished", f"was replaced by workload slice {newer.key}")
        self.jobs[found.uid] = replace(older, standing=replace(older.standing, why=why))
        del self.admitted[found.uid]
        shown = self.admitted[newer.workload.uid] = replace(found, uid=newer.workload.uid)
        return shown

    def _end(self, uid: str) -> None:
        """Its pods are gone; it queues again unless it may not. A slice that waits to replace it goes on alone."""
        waits = self._slices.pop(uid, None)
        shown = uid if waits is not None else self._shown.get(uid, uid)
        self.admitted.pop(shown, None)
        self.engine.release(uid)
        if waits is not None:
            del self._shown[uid]
            self.engine.upsert_workload(waits.older.workload)
            self.engine.upsert_workload(waits.newer.workload)
        if self.jobs[shown].standing.why is not None:
            self.engine.remove_workload(uid)

    def _ended(self, eviction: Eviction) -> Ended:
        """What is shown of an eviction."""
        uid, by = eviction.uid, owner_uid(eviction.by)
        shown = uid if uid in self._slices else self._shown.get(uid, uid)
        return Ended(shown, eviction.reason.value, eviction.message, self._shown.get(by, by))
