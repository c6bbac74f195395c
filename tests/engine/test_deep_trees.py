"""A chain of cohorts of any length is planned like a short one: a stored configuration may be older than the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queue_manager.engine.configuration import (
    CellQuota,
    Cohort,
    Configuration,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    Queue,
    ResourceGroup,
)
from queue_manager.engine.engine import Engine
from tests.engine.stream import job

LEVELS = 1500


def deep(fair: bool) -> Engine:
    """Queue `low`, without quota, at the end of a long chain; `own`, with all of it, at the root."""

    def quota(gpus: int) -> tuple[ResourceGroup, ...]:
        return (ResourceGroup(("gpu",), (FlavorQuotas("f", {"gpu": CellQuota(gpus)}),)),)

    reclaims = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    cohorts = [Cohort(f"c{level}", f"c{level - 1}" if level else "") for level in range(LEVELS)]
    queues = [Queue("low", f"c{LEVELS - 1}", quota(0)), replace(Queue("own", "c0", quota(4)), preemption=reclaims)]
    engine = Engine()
    engine.configure(
        Configuration(
            flavors={"f": Flavor("f")},
            cohorts={cohort.name: cohort for cohort in cohorts},
            queues={queue.name: queue for queue in queues},
            fair_sharing=FairSharing() if fair else None,
        )
    )
    return engine


@pytest.mark.parametrize("fair", [False, True])
def test_the_last_of_a_long_chain_borrows_and_gives_back(fair: bool):
    engine = deep(fair)
    engine.upsert_workload(job("borrower", "low", 1, 4))
    assert [each.uid for each in engine.plan(10).admissions] == ["borrower"]
    engine.upsert_workload(job("owner", "own", 2, 4))
    assert [each.uid for each in engine.plan(20).evictions] == ["borrower"]
