"""Stops: what people stop by hand, kept beside the configuration that they write.

A stop is no part of anybody's file: applying one neither makes nor ends it, nor does a rollback. It is kept with the
configuration, so that it has a revision with author and reason, and so that nothing is decided without it. Of a stop
and of what the configuration says itself the stricter one counts (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from queue_manager.engine.configuration import Configuration, Flavor, LocalQueue, Queue, StopPolicy

KIND = "Stop"
"""Kind under which the store keeps them; no file may have it."""
KINDS = ("Queue", "Cohort", "LocalQueue", "Flavor")
STRICTNESS = tuple(StopPolicy)
Stoppable = TypeVar("Stoppable", Queue, LocalQueue, Flavor)
Verdict = tuple[StopPolicy, str]
"""A policy, and words on who wants it."""


class Stored(Protocol):
    """An object as the store keeps it."""

    @property
    def kind(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def spec(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Stop:
    """`kind` and `name` (a local queue's has a `namespace`) is what is stopped, `by` whom, `at` when (RFC 3339).

    `authority` is the node (`Cohort/NAME`, `Queue/NAME`) from which its author may stop what lies below: nobody ends
    the stop who has a role below that alone (docs/decisions/0013). "" is the whole tree; stops older than that have
    None.
    """

    kind: str
    name: str
    policy: StopPolicy
    namespace: str = ""
    by: str = ""
    reason: str = ""
    at: str = ""
    authority: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name under which the store keeps it."""
        return KIND, self.namespace, f"{self.kind}/{self.name}"

    @property
    def subject(self) -> tuple[str, str, str]:
        """Kind, namespace and name of what is stopped."""
        return self.kind, self.namespace, self.name

    @property
    def words(self) -> str:
        """Who, since when and why."""
        return f"by {self.by} since {self.at}: {self.reason}"

    def spec(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "policy": self.policy.value,
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
            "authority": self.authority,
        }


def stops_of(stored: Iterable[Stored]) -> tuple[Stop, ...]:
    """The stops among the objects of the store, by kind, namespace and name."""
    found = [
        Stop(**{**row.spec, "namespace": row.namespace, "policy": StopPolicy(row.spec["policy"])})
        for row in stored
        if row.kind == KIND
    ]
    return tuple(sorted(found, key=lambda stop: stop.subject))


def with_stops(configuration: Configuration, stops: Iterable[Stop]) -> Configuration:
    """The configuration with what is stopped by hand; stops of what is not there say nothing."""
    by_subject = {stop.subject: stop for stop in stops}
    if not by_subject:
        return configuration
    queues = {
        name: _stricter(queue, list(_of_queue(queue, configuration, by_subject)))
        for name, queue in configuration.queues.items()
    }
    local_queues = {
        key: _stricter(local, _of(by_subject.get(("LocalQueue", *_split(key)))))
        for key, local in configuration.local_queues.items()
    }
    flavors = {
        name: _stricter(flavor, _of(by_subject.get(("Flavor", "", name))))
        for name, flavor in configuration.flavors.items()
    }
    return replace(configuration, queues=queues, local_queues=local_queues, flavors=flavors)


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _of(stop: Stop | None) -> list[Verdict]:
    return [] if stop is None else [(stop.policy, stop.words)]


def _of_queue(
    queue: Queue, configuration: Configuration, by_subject: Mapping[tuple[str, str, str], Stop]
) -> Iterator[Verdict]:
    """Its own stop, then those of the cohorts above it."""
    yield from _of(by_subject.get(("Queue", "", queue.name)))
    yield from _above(queue.cohort, configuration, by_subject)


def stopped_cohorts(configuration: Configuration, stops: Iterable[Stop]) -> dict[str, Verdict]:
    """What counts for each cohort that is stopped by hand, or lies below one that is: the strictest policy."""
    by_subject = {stop.subject: stop for stop in stops if stop.kind == "Cohort"}
    found: dict[str, Verdict] = {}
    for cohort in configuration.cohorts.values() if by_subject else ():
        own = _of(by_subject.get(("Cohort", "", cohort.name)))
        if verdicts := [*own, *_above(cohort.parent, configuration, by_subject)]:
            found[cohort.name] = _strictest(verdicts)
    return found


def _above(
    cohort: str, configuration: Configuration, by_subject: Mapping[tuple[str, str, str], Stop]
) -> Iterator[Verdict]:
    """Those of a cohort and of the ones above it."""
    seen: set[str] = set()
    while cohort and cohort not in seen:
        seen.add(cohort)
        stop = by_subject.get(("Cohort", "", cohort))
        if stop is not None:
            yield stop.policy, f"with cohort {cohort} {stop.words}"
        above = configuration.cohorts.get(cohort)
        cohort = above.parent if above is not None else ""


def _stricter(item: Stoppable, verdicts: list[Verdict]) -> Stoppable:
    """The item under the strictest of its own policy and these; of equal ones the first that says who wants it."""
    if not verdicts:
        return item
    policy, words = _strictest(verdicts)
    if STRICTNESS.index(policy) < STRICTNESS.index(item.stop_policy):
        return item
    return replace(item, stop_policy=policy, stopped=words)


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """The first of the strictest."""
    return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict[0]))
