"""From the record of a play to its figures. Times in seconds, amounts in milli-CPUs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from statistics import fmean

from benchmarks.load.loads import NOMINAL, Load
from benchmarks.load.record import JobRecord, Play

LONG = 1.0
"""Seconds of waiting after which quota that lies idle is lost."""


@dataclass(frozen=True, slots=True)
class Figures:
    """`used` is the part of all quota in use over the wall time, `used_in_need` that while anything in the cohort had
    waited for more than a second. `idle_to_start` are, for each first start, the seconds from the moment from which on
    its quota lay free and the Job was known."""

    wall: float
    used: float
    used_in_need: float
    to_admission: Mapping[str, float]
    idle_to_start: tuple[float, ...]
    stops: int


def figures(load: Load, play: Play) -> Figures:
    """The figures of a complete play."""
    began = min(job.sent for job in play.jobs)
    wall = max(job.finished for job in play.jobs) - began
    cohorts: dict[int, list[JobRecord]] = defaultdict(list)
    for job in play.jobs:
        cohorts[job.queue // load.queues_per_cohort].append(job)
    quota = 1000 * NOMINAL * load.queues_per_cohort
    need = [_in_need(jobs) for jobs in cohorts.values()]
    work = sum(job.milli * (run.until - run.since) for job in play.jobs for run in job.runs)
    needed = sum(seconds for _, seconds in need)
    waited: dict[str, list[float]] = defaultdict(list)
    for job in play.jobs:
        waited[job.each].append(job.runs[0].since - job.sent)
    return Figures(
        wall=wall,
        used=work / (quota * load.cohorts * wall),
        used_in_need=sum(used for used, _ in need) / (quota * needed) if needed else 1.0,
        to_admission={each.name: fmean(waited[each.name]) for each in load.classes},
        idle_to_start=tuple(seconds for jobs in cohorts.values() for seconds in _idle_to_start(jobs, quota)),
        stops=sum(len(job.runs) - 1 for job in play.jobs),
    )


def _in_need(jobs: Iterable[JobRecord]) -> tuple[float, float]:
    """(milli-CPU-seconds in use, seconds) while a Job of the cohort has waited for longer than LONG."""
    changes: list[tuple[float, int, int]] = []
    for job in jobs:
        if job.runs[0].since > job.sent + LONG:
            changes += [(job.sent + LONG, 0, 1), (job.runs[0].since, 0, -1)]
        for run in job.runs:
            changes += [(run.since, job.milli, 0), (run.until, -job.milli, 0)]
    work = seconds = last = 0.0
    used = waiting = 0
    for at, amount, waits in sorted(changes):
        if waiting:
            work += used * (at - last)
            seconds += at - last
        used, waiting, last = used + amount, waiting + waits, at
    return work, seconds


def _idle_to_start(jobs: Iterable[JobRecord], quota: int) -> Iterable[float]:
    jobs = list(jobs)
    changes = [
        change for job in jobs for run in job.runs for change in ((run.since, job.milli), (run.until, -job.milli))
    ]
    steps = [(at, sum(amount for _, amount in group)) for at, group in groupby(sorted(changes), key=itemgetter(0))]
    times = [at for at, _ in steps]
    free = [quota - used for used in accumulate(amount for _, amount in steps)]
    for job in jobs:
        start = job.runs[0].since
        # Free right before its own start: the step before the one that it makes.
        step = bisect_right(times, start) - 2
        since = start
        while step >= 0 and free[step] >= job.milli:
            since = times[step]
            step -= 1
            if since <= job.seen:
                break
        if step < 0:
            since = job.seen
        yield max(0.0, start - max(since, job.seen))
