"""Timed work of the leader, by APScheduler: it starts and ends with the term, and keeps nothing between terms."""

from __future__ import annotations

import asyncio

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from queue_manager.cluster.clock import Clock
from queue_manager.controller.in_thread import InThread
from queue_manager.controller.past import Past
from queue_manager.controller.term import Term
from queue_manager.store.store import Store

SWEEP_MINUTES = 5
CLUSTER_SECONDS = 5
MOVE_MINUTES = 1
PURGE_MINUTES = 5


async def save_cluster(term: Term) -> None:
    """What plans and explanations made elsewhere need of the cluster. Not before the term has caught up: what is not in
    the caches yet would be taken for gone."""
    if term.ready:
        await term.stored_nodes.save()
        await term.stored_namespaces.save()


async def timed_jobs(term: Term, store: Store, in_thread: InThread, clock: Clock) -> None:
    """Runs until cancelled."""
    past = Past(store, clock, lambda: term.picture.compiled.settings)
    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 60})
    scheduler.add_job(term.inbox.sweep, "interval", minutes=SWEEP_MINUTES, id="sweep")
    scheduler.add_job(save_cluster, "interval", (term,), seconds=CLUSTER_SECONDS, id="cluster")
    scheduler.add_job(past.move, "interval", minutes=MOVE_MINUTES, id="history")
    scheduler.add_job(past.purge, "interval", minutes=PURGE_MINUTES, id="events")
    scheduler.add_job(past.keep, "cron", minute=17, id="retention")
    scheduler.start()
    try:
        await past.keep()
        await asyncio.get_running_loop().create_future()
    finally:
        scheduler.shutdown(wait=False)
