"""Timed work of the leader, by APScheduler: it starts and ends with the term, and keeps nothing between terms."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from queue_manager.cluster.clock import Clock
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.term import Term
from queue_manager.store.store import Store

SWEEP_MINUTES = 5
CLUSTER_SECONDS = 5
RETENTION = timedelta(days=400)
"""How long ended workloads are kept: a year of history and some."""


async def save_cluster(term: Term) -> None:
    """What plans and explanations made elsewhere need of the cluster. Not before the term has caught up: what is not in
    the caches yet would be taken for gone."""
    if term.ready:
        await term.stored_nodes.save()
        await term.stored_namespaces.save()


async def timed_jobs(term: Term, store: Store, in_thread: InThread, clock: Clock) -> None:
    """Runs until cancelled."""

    async def retention() -> None:
        await in_thread(store.forget_ended, clock.now() - RETENTION, 10_000)

    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 60})
    scheduler.add_job(term.inbox.sweep, "interval", minutes=SWEEP_MINUTES, id="sweep")
    scheduler.add_job(save_cluster, "interval", (term,), seconds=CLUSTER_SECONDS, id="cluster")
    scheduler.add_job(retention, "cron", hour=3, minute=17, id="retention")
    scheduler.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        scheduler.shutdown(wait=False)
