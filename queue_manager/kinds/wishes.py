"""What the annotations of a job, a replicated job or a pod template ask of the places of its replicas (issue 5).

On the job they speak of all its pod sets, nearer to the pods they take the place of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from queue_manager.engine.workload import Apart, PodSet, TopologyRequest
from queue_manager.kinds import annotations as keys
from queue_manager.kinds.fields import View


@dataclass(frozen=True, slots=True)
class Wishes:
    """Of a whole job: the topology request around all its pods, and levels for its replicas ("" for none): `spread`
    puts all of them on distinct domains, `exclusive` gives each a domain of its own."""

    topology: TopologyRequest | None = None
    spread: str = ""
    exclusive: str = ""


def wishes_of(*metadata: View) -> Wishes:
    """The wishes in the annotations of a job, given as the metadata in which to look, what counts first first. Raises
    Unresolvable."""
    topologies = (found for one in metadata if (found := keys.topology_request(one)) is not None)
    return Wishes(next(topologies, None), spread_level(*metadata), exclusive_level(*metadata))


def spread_level(*metadata: View) -> str:
    """The level on whose domains replicas are spread, "" without one. Raises Unresolvable."""
    return _level(metadata, (keys.SPREAD_TOPOLOGY,))


def exclusive_level(*metadata: View) -> str:
    """The level of which each replica gets a domain for itself, "" without one. JobSet's own annotation means the same
    as ours, which counts first. Raises Unresolvable."""
    return _level(metadata, keys.EXCLUSIVE_KEYS)


def _level(metadata: Sequence[View], names: Sequence[str]) -> str:
    for one in metadata:
        for name in names:
            field = keys.annotation(one, name)
            if field.given:
                return keys.read(field, keys.parse_level)
    return ""


def with_wishes(pod_set: PodSet, replica_size: int, job: Wishes, *nearer: View) -> PodSet:
    """A pod set with what is asked of its replicas: by the metadata `nearer` to it than the job, else by the job.

    `replica_size` are the pods of a child Job, 0 where all pods are of one. Raises Unresolvable.
    """
    own = spread_level(*nearer)
    distinct = Apart(own, pod_set.name) if own else Apart(job.spread) if job.spread else None
    return replace(
        pod_set,
        replica_size=replica_size,
        distinct=distinct,
        exclusive=exclusive_level(*nearer) or job.exclusive,
    )
