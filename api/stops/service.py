"""Stops by hand: a change of the configuration that no file makes or ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from queue_manager.config.compiled import Compiled
from queue_manager.config.human import moment
from queue_manager.config.problem import nearest_or_list
from queue_manager.config.stops import Stop
from queue_manager.engine.configuration import StopPolicy
from queue_manager.store import records

from ..auth.veil import Veil
from ..configuration.schemas import Plan
from ..configuration.service import Proposal, Proposing, change
from ..context import Context, Loaded
from ..paging import Page, Place, page_by
from ..planning import service as planning
from ..problems import not_found
from . import schemas
from .authority import authority_over

PLACES: Mapping[str, Callable[[Stop], Place]] = {
    "name": lambda stop: stop.subject,
    "at": lambda stop: (stop.at, *stop.subject),
}
"""What lists of stops are sorted by; by name those of one kind stand together."""


def list_stops(context: Context, sort: str, cursor: str, limit: int) -> Page[schemas.Stop]:
    """What is stopped by hand."""
    loaded = context.configuration()
    access = context.access_by(loaded)
    seen = [stop for stop in loaded.stops if access.sees_subject(*stop.subject, loaded.objects)]
    page, following = page_by(seen, PLACES, sort, cursor, limit)
    shown = [_shown(loaded, stop.subject, stop) for stop in page]
    return Page(items=_veiled(context, shown), next=following)


def stop(context: Context, kind: str, namespace: str, name: str, request: schemas.StopRequest) -> schemas.Stop:
    """Stops something, or ends that. 404 where there is no such thing, 403 where that is not the caller's to end."""

    def attempt(loaded: Loaded) -> schemas.Stop:
        subject = _subject(loaded, kind, namespace, name)
        known = next((each for each in loaded.stops if each.subject == subject), None)
        caller, now = context.caller, context.now()
        wanted = Stop(kind, subject[2], StopPolicy(request.policy), namespace, caller.name, request.reason, moment(now))
        if known is not None and replace(known, at=wanted.at, authority=None) == wanted:
            return _shown(loaded, subject, known)  # asked for twice
        wanted = replace(wanted, authority=authority_over(context, loaded, wanted, known))
        context.store.apply_configuration(
            [] if wanted.policy is StopPolicy.NONE else [_row(wanted)],
            delete=[wanted.key] if wanted.policy is StopPolicy.NONE and known is not None else [],
            author=caller.name,
            reason=request.reason,
            now=now,
            expected_revision=loaded.revision,
            source=caller.source.value,
            address=caller.address,
        )
        newest = context.configuration()
        return _shown(newest, subject, next((each for each in newest.stops if each.subject == subject), None))

    return _veiled(context, [change(context, attempt)])[0]


def _veiled(context: Context, found: list[schemas.Stop]) -> list[schemas.Stop]:
    """What is said of stops, without whom the caller may not see: flavors are stopped for everybody."""
    veil = Veil(context, (text for each in found for text in (each.by, each.reason, each.message)))
    return [
        each.model_copy(update={name: veil.text(getattr(each, name)) for name in ("by", "reason", "message")})
        for each in found
    ]


async def plan(context: Context, kind: str, namespace: str, name: str, policy: schemas.Policy) -> Plan:
    """What stopping something would do. What was said of a stop that is there is told by the list of stops alone."""
    planned = await planning.plan(context, _proposing(kind, namespace, name, policy))
    changes = [
        each.model_copy(update={"fields": [field for field in each.fields if field.field == "spec.policy"]})
        for each in planned.changes
    ]
    return planned.model_copy(update={"changes": changes})


def _proposing(kind: str, namespace: str, name: str, policy: schemas.Policy) -> Proposing:
    """What stopping something would change. 404 where there is no such thing."""

    def proposed(context: Context, loaded: Loaded) -> Proposal:
        subject = _subject(loaded, kind, namespace, name)
        known = next((each for each in loaded.stops if each.subject == subject), None)
        wanted = replace(
            known or Stop(kind, subject[2], StopPolicy.NONE, namespace, context.caller.name), policy=StopPolicy(policy)
        )
        made = (_row(wanted),) if wanted.policy is not StopPolicy.NONE else ()
        gone = (wanted.key,) if known is not None and not made else ()
        return Proposal(loaded, made, gone, loaded.objects)

    return proposed


def _row(stop: Stop) -> records.ConfigObject:
    kind, namespace, name = stop.key
    return records.ConfigObject(kind, name, stop.spec(), namespace)


def _subject(loaded: Loaded, kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    """What is meant by a name, of queues and cohorts also by a path; what is stopped may be gone by now."""
    compiled = loaded.compiled
    if kind in ("Queue", "Cohort"):
        node = compiled.tree.find(kind, name)
        name = node.name if node is not None else name
    subject = (kind, namespace, name)
    if _effective(compiled, subject) is None and not any(s.subject == subject for s in loaded.stops):
        known = [item.name for item in loaded.objects if item.kind == kind and item.metadata.namespace == namespace]
        where = f"{namespace}/{name}" if namespace else name
        raise not_found(kind, where, nearest_or_list(name, known, kind))
    return subject


def _effective(compiled: Compiled, subject: tuple[str, str, str]) -> tuple[StopPolicy, str] | None:
    """The policy that counts and words on who wants it; None where there is no such thing."""
    kind, namespace, name = subject
    configuration = compiled.configuration
    if kind == "Cohort":
        return compiled.stopped_cohorts.get(name, (StopPolicy.NONE, "")) if name in configuration.cohorts else None
    found: Any = {
        "Queue": configuration.queues.get(name),
        "Flavor": configuration.flavors.get(name),
        "LocalQueue": configuration.local_queues.get(f"{namespace}/{name}"),
    }[kind]
    return None if found is None else (found.stop_policy, found.stopped)


def _shown(loaded: Loaded, subject: tuple[str, str, str], known: Stop | None) -> schemas.Stop:
    kind, namespace, name = subject
    found = _effective(loaded.compiled, subject)
    policy = known.policy if known is not None else StopPolicy.NONE
    effective, words = found or (StopPolicy.NONE, "")
    message = "" if found is not None else "there is no such thing any more"
    if effective is not StopPolicy.NONE and (known is None or words != known.words):
        message = f"it is stopped ({effective.value}) {words or 'by its configuration'}"
    return schemas.Stop.model_validate(
        {
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "policy": policy.value,
            "effective": effective.value,
            "by": known.by if known is not None else "",
            "at": known.at if known is not None else None,
            "reason": known.reason if known is not None else "",
            "authority": known.authority if known is not None else None,
            "message": message,
        }
    )
