"""Plans of changes of the configuration, and applying only what was planned."""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from typing import Any

from starlette.concurrency import run_in_threadpool

from queue_manager.store import codec

from ..auth.changes import check_change
from ..auth.veil import Veil
from ..configuration import service
from ..configuration.schemas import Applied, Difference, Plan
from ..configuration.service import Proposal, Proposing
from ..context import Context
from ..problems import ProblemError
from .effects import Effects
from .worker import TooBusyError, WorkerLostError

TOUCHED = ("over_quota", "preemptible", "would_stop", "would_start", "never_start")
"""Lists of a plan that name workloads."""


def difference(context: Context, proposing: Proposing) -> Difference:
    """What would change, without a look at the live state."""
    proposal = proposing(context, context.configuration())
    diff = proposal.diff()
    check_change(context, proposal.loaded, proposal.objects, diff)
    return Difference(**_difference(proposal, diff))


def _difference(proposal: Proposal, diff: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "revision": proposal.loaded.revision,
        "changes": service.described(diff),
        "warnings": service.findings(proposal.advice),
    }


async def plan(context: Context, proposing: Proposing) -> Plan:
    """What would change, and what that does to the live state."""
    _, planned = await _planned(context, proposing)
    return await run_in_threadpool(_as_seen, context, planned)


def _as_seen(context: Context, planned: Plan) -> Plan:
    """The plan without the workloads that the caller may not see; how many those are is said."""
    lists = {name: getattr(planned, name) for name in TOUCHED}
    veil = Veil(context, {each for found in lists.values() for each in found})
    seen = {name: [each for each in found if not veil.hides(each)] for name, found in lists.items()}
    hidden = sum(len(lists[name]) - len(seen[name]) for name in TOUCHED)
    if not hidden:
        return planned
    limits = [*planned.limits, f"{hidden} more workloads are touched, in queues that you may not see"]
    return planned.model_copy(update={**seen, "limits": limits})


async def _planned(context: Context, proposing: Proposing) -> tuple[Proposal, Plan]:
    proposal = await run_in_threadpool(lambda: proposing(context, context.configuration()))
    diff = await run_in_threadpool(proposal.diff)
    await run_in_threadpool(check_change, context, proposal.loaded, proposal.objects, diff)
    effects = await _effects(context, proposal) if diff else Effects()
    return proposal, await run_in_threadpool(_answer, proposal, diff, effects)


def _answer(proposal: Proposal, diff: list[dict[str, Any]], effects: Effects) -> Plan:
    return Plan(
        **_difference(proposal, diff),
        hash=_hash(diff, effects),
        over_quota=list(effects.over_quota),
        preemptible=list(effects.preemptible),
        would_stop=list(effects.would_stop),
        would_start=list(effects.would_start),
        never_start=list(effects.never_start),
        limits=list(effects.limits),
    )


async def _effects(context: Context, proposal: Proposal) -> Effects:
    loaded = proposal.loaded
    try:
        return await context.planner.effects(loaded.stored, proposal.after(), loaded.revision, context.now())
    except TooBusyError:
        raise ProblemError(
            503, "Too many plans", "others are being worked out; try again", headers={"Retry-After": "5"}
        ) from None
    except WorkerLostError:
        raise ProblemError(
            503,
            "Plan not worked out",
            "the process that works it out was killed each time; see whether the server has memory enough",
            headers={"Retry-After": "30"},
        ) from None


def _hash(diff: list[dict[str, Any]], effects: Effects) -> str:
    """The same as long as the same objects change in the same way and the same workloads are touched."""
    return hashlib.sha256(codec.encode([diff, astuple(effects)]).encode()).hexdigest()[:32]


async def apply_if(context: Context, proposing: Proposing, expected: str, reason: str) -> Applied:
    """Applies a change whose plan still has this hash, 412 when it has another one by now."""
    for _ in range(service.TRIES):
        proposal, planned = await _planned(context, proposing)
        if planned.hash != expected:
            raise service.stale(
                f"the plan is {planned.hash} by now, not {expected[:64]}: what it does to the live state has changed"
            )
        applied = await run_in_threadpool(service.apply_planned, context, proposal, reason)
        if applied is not None:
            return applied
    raise service.too_fast()
