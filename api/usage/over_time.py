"""Usage over time: who was charged how much for how long, from the ledger, beside the quota that there was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from queue_manager.config.fields import amount
from queue_manager.config.moments import edges, parse_step
from queue_manager.config.problem import nearest_or_list
from queue_manager.store import usage_over_time as ledger
from queue_manager.store.requests import RequestStore
from queue_manager.store.usage_over_time import Key, Step

from ..auth.access import Access
from ..context import Context, Loaded
from ..moments import bad_query, span
from ..problems import ProblemError
from . import pages
from .schemas import UsageEntry, UsageOverTime

GROUPS = ("queue", "cohort", "namespace", "user", "flavor", "resource", "kind", "priorityClass")
"""What usage is grouped by. By resource always: sums over several would mean nothing."""
OF_QUOTAS = frozenset({"queue", "cohort", "flavor", "resource"})
"""Groups and filters by which there is a quota."""
MAX_BUCKETS = 1_000
MAX_ITEMS = 50_000
"""Groups times buckets."""
MAX_QUOTA_CHANGES = 20_000
LONGEST = timedelta(days=1)
"""Until now, where nothing is said."""
_TURNS = threading.BoundedSemaphore(2)
"""So many sums at once: they read months of the ledger, and the database has other work."""
_ROOM = threading.BoundedSemaphore(8)
"""So many requests that sum or wait for their turn: threads are there for other requests, too."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked, in the words of the query."""

    by: Sequence[str] = ()
    since: str = ""
    until: str = ""
    step: str = ""
    queue: str = ""
    cohort: str = ""
    level: int | None = None
    equal: Mapping[str, str] = field(default_factory=dict)
    sort: str = "start"
    cursor: str = ""
    limit: int = MAX_ITEMS


def read(context: Context, wanted: Wanted) -> UsageOverTime:
    """What was charged, by group and bucket; 422 where the question makes no sense or asks for too much."""
    context = context.pinned()
    by = _groups(wanted)
    after = pages.read_cursor(wanted.cursor, wanted.sort) if wanted.cursor else None
    buckets = _buckets(wanted, context.now(), after)
    queues = context.queue_names(wanted.queue, wanted.cohort)
    equal = {word: value for word, value in wanted.equal.items() if value}
    store = RequestStore(context.store.engine)
    # Of a cohort the queues are summed; which of them it has is not in the ledger.
    columns = [word for word in ledger.COLUMNS if word in by or (word == "queue" and "cohort" in by)]
    asked = ledger.Asked(buckets, columns, equal, queues)
    steps = _take_turn(lambda: store.usage_steps(asked, MAX_ITEMS), len(buckets) - 1)
    cohorts = _Cohorts(context.configuration(), context.access, wanted.level)
    used = _sums(buckets, [_regrouped(step, columns, by, cohorts) for step in steps])
    quota = _quota(context, store, wanted, buckets, by, equal, queues, cohorts)
    items, following = pages.page(_items(buckets, by, used, quota), buckets, wanted.sort, after, wanted.limit)
    return UsageOverTime.model_construct(
        since=buckets[0],
        until=buckets[-1],
        step=wanted.step,
        by=list(by),
        kept_since=store.usage_kept_since(),
        items=items,
        next=following,
    )


def _groups(wanted: Wanted) -> list[str]:
    words = [word.strip() for each in wanted.by for word in each.split(",") if word.strip()]
    for word in words:
        if word not in GROUPS:
            raise bad_query("by", f"has no {word!r}; {nearest_or_list(word, GROUPS, 'group')}")
    if wanted.level is not None and "cohort" not in words:
        raise bad_query("level", "has a meaning with by=cohort only")
    return [word for word in GROUPS if word in words or word == "resource"]


def _buckets(wanted: Wanted, now: datetime, after: pages.Place | None) -> list[datetime]:
    # Later pages are of the span that the first one had, whatever was said of it: now is another time.
    begin, end = (after.since, after.until) if after is not None else span(wanted.since, wanted.until, now)
    if begin is not None and begin >= now:
        raise bad_query("from", f"is in the future: {begin.isoformat()}; usage is known until now")
    end = now if end is None else min(end, now)
    begin = end - LONGEST if begin is None else begin
    if not wanted.step:
        return [begin, end]
    try:
        step = parse_step(wanted.step)
    except ValueError as error:
        raise bad_query("step", f"is not understood: {error}") from None
    try:
        return edges(begin, end, step, MAX_BUCKETS)
    except ValueError:
        least = (end - begin) / MAX_BUCKETS
        raise bad_query(
            "step",
            f"makes more than {MAX_BUCKETS} buckets of this span: make it at least {_rounded_up(least)}, "
            "or from and to nearer",
        ) from None


def _rounded_up(least: timedelta) -> str:
    for unit, size in (("m", 60), ("h", 3600), ("d", 86400)):
        number = -(-least // timedelta(seconds=size))
        if number < 60 or unit == "d":
            return f"{number}{unit}"
    raise AssertionError


def _take_turn(read: Callable[[], list[Step]], buckets: int) -> list[Step]:
    if not _ROOM.acquire(blocking=False):
        raise ProblemError(503, "Busy", "others ask for usage over time; try again", headers={"Retry-After": "2"})
    try:
        with _TURNS:
            return read()
    except ledger.TooMuch:
        raise _too_many("", buckets) from None
    except ledger.TooLong:
        seconds = int(ledger.PATIENCE.total_seconds())
        raise bad_query("from", f"is so long before `to` that the sums take over {seconds} s: ask for less") from None
    finally:
        _ROOM.release()


def _too_many(groups: str, buckets: int) -> ProblemError:
    return bad_query(
        "by",
        f"makes more than {MAX_ITEMS} items{groups} in {buckets} buckets: group by less, filter (resource=...), or "
        "take a longer step",
    )


def _sums(buckets: Sequence[datetime], steps: Iterable[Step]) -> dict[Key, dict[int, int]]:
    found = list(steps)
    groups = len({step.key for step in found})
    if groups * (len(buckets) - 1) > MAX_ITEMS:
        raise _too_many(f", of {groups} groups", len(buckets) - 1)
    return ledger.accumulate(buckets, found)


class _Cohorts:
    """The cohort that a queue, or a cohort's own quota, counts for: the one that it hangs on now, or the one above it
    at a level of the tree. Those that the caller may not see are passed over."""

    def __init__(self, loaded: Loaded, access: Access, level: int | None) -> None:
        self._tree = loaded.compiled.tree
        self._access = access
        self._level = level
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, name: str) -> str:
        """Its name, "" for none."""
        if (kind, name) not in self._known:
            chain = list(self._above(kind, name))
            place = 0 if self._level is None else max(0, len(chain) - self._level)
            self._known[kind, name] = chain[place] if chain else ""
        return self._known[kind, name]

    def _above(self, kind: str, name: str) -> Iterator[str]:
        """The cohort itself, or that of the queue; then those above."""
        queue = self._tree.queues.get(name)
        cohort = name if kind == "Cohort" else queue.parent if queue else ""
        seen = set[str]()
        while cohort and cohort not in seen:
            seen.add(cohort)
            if self._access.sees(("Cohort", cohort)):
                yield cohort
            node = self._tree.cohorts.get(cohort)
            cohort = node.parent if node else ""


def _regrouped(step: Step, columns: Sequence[str], by: Sequence[str], cohorts: _Cohorts) -> Step:
    if "cohort" not in by:
        return step
    values = dict(zip(columns, step.key, strict=True))
    values["cohort"] = cohorts.of("Queue", values["queue"])
    return Step(tuple(values[word] for word in by), step.bucket, step.rise, step.moment)


def _quota(
    context: Context,
    store: RequestStore,
    wanted: Wanted,
    buckets: Sequence[datetime],
    by: Sequence[str],
    equal: Mapping[str, str],
    queues: Sequence[str] | None,
    cohorts: _Cohorts,
) -> dict[Key, dict[int, int]] | None:
    """Nominal quota times microseconds; None where the groups or filters are none of quotas, or the quotas changed so
    often that they are not summed."""
    if not {*by, *equal} <= OF_QUOTAS:
        return None
    loaded, access = context.configuration(), context.access
    try:
        changes = store.quota_changes(buckets[0], loaded.revision, MAX_QUOTA_CHANGES)
    except ledger.TooMuch:
        return None
    counted = _counted(loaded, access, wanted, None if queues is None else set(queues), "queue" in by)
    now = {(row.kind, row.name): row.spec.get("resourceGroups") for row in loaded.stored}
    steps: list[Step] = []
    for kind, name, groups, begin, end in _spans(now, changes, buckets):
        if not counted(kind, name):
            continue
        for flavor, resource, nominal in _nominal(groups):
            meant = equal.get("resource", resource) in (resource, resource.partition("/")[2])
            if equal.get("flavor", flavor) == flavor and meant:
                values = {"queue": name, "flavor": flavor, "resource": resource}
                values["cohort"] = cohorts.of(kind, name) if "cohort" in by else ""
                key = tuple(values[word] for word in by)
                steps += ledger.as_steps(buckets, key, nominal, begin, end)
    return _sums(buckets, steps)


def _counted(
    loaded: Loaded, access: Access, wanted: Wanted, queues: set[str] | None, of_queues: bool
) -> Callable[[str, str], bool]:
    """Whose quota belongs to the question: of queues, and of cohorts what they have themselves."""
    tree = loaded.compiled.tree
    below: set[str] | None = None
    if wanted.cohort and (top := tree.find("Cohort", wanted.cohort)):
        below, pending = set(), [top]
        while pending:
            node = pending.pop()
            if node.kind == "Cohort" and node.name not in below:
                below.add(node.name)
                pending += node.children

    def counted(kind: str, name: str) -> bool:
        if kind == "Queue":
            return (queues is None or name in queues) and access.sees((kind, name))
        if kind != "Cohort" or of_queues or wanted.queue:
            return False
        return (below is None or name in below) and access.sees((kind, name))

    return counted


def _spans(
    now: Mapping[tuple[str, str], Any], changes: Iterable[ledger.QuotaChange], buckets: Sequence[datetime]
) -> Iterator[tuple[str, str, Any, datetime, datetime]]:
    """How long each queue and cohort had which resource groups: from now back in time."""
    groups, ends = dict(now), dict[tuple[str, str], datetime]()
    for change in changes:
        key = (change.kind, change.name)
        yield *key, groups.get(key), change.at, ends.get(key, buckets[-1])
        groups[key], ends[key] = change.before, change.at
    for key, last in groups.items():
        yield *key, last, buckets[0], ends.get(key, buckets[-1])


def _nominal(groups: Any) -> Iterator[tuple[str, str, int]]:
    for group in groups or ():
        for flavor in group.get("flavors", ()):
            for resource in flavor.get("resources", ()):
                nominal = amount(resource["name"], str(resource.get("nominalQuota", "0")))
                yield flavor["name"], resource["name"], nominal


def _items(
    buckets: Sequence[datetime],
    by: Sequence[str],
    used: Mapping[Key, Mapping[int, int]],
    quota: Mapping[Key, Mapping[int, int]] | None,
) -> Iterator[tuple[int, Key, UsageEntry]]:
    """Bucket, group, and what is said of them."""
    names = [UsageEntry.FIELD_OF[word] for word in by]
    places = {(bucket, key) for key, of_key in used.items() for bucket in of_key}
    places |= {(bucket, key) for key, of_key in (quota or {}).items() for bucket in of_key}
    if len(places) > MAX_ITEMS:
        raise _too_many("", len(buckets) - 1)
    for bucket, key in places:
        total = used.get(key, {}).get(bucket, 0)
        lasts = (buckets[bucket + 1] - buckets[bucket]) // timedelta(microseconds=1)
        entry = UsageEntry.model_construct(
            None,
            **dict(zip(names, key, strict=True)),
            start=buckets[bucket],
            end=buckets[bucket + 1],
            used_seconds=total // 1_000_000,
            average=round(total / lasts, 3),
            nominal_seconds=None if quota is None else quota.get(key, {}).get(bucket, 0) // 1_000_000,
        )
        yield bucket, key, entry
