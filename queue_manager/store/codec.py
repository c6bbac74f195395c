"""JSON shapes of the engine's dataclasses in the database. What is written reads back equal, tuples and enums too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.workload import DisruptionMode, GroupPolicy, PodGroup, PodSet, TopologyRequest
from queue_manager.store.records import Check, Relabel

_COLUMNS = frozenset({"name", "count", "requests", "stages", "reclaimed", "min_count"})


def encode(value: object) -> str:
    """JSON text of builtins, dataclasses, enums and times. PostgreSQL can't keep NUL characters: they become U+FFFD."""
    data = msgspec.json.encode(value)
    if b"\\u0000" in data:
        data = msgspec.json.encode(_without_nul(msgspec.json.decode(data)))
    return data.decode()


def text_array(texts: Iterable[str]) -> str:
    """An array of texts as PostgreSQL reads it: of many that takes the driver much longer."""
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "�")
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value


def pod_group_rows(uid: str, groups: Sequence[PodGroup]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `pod_groups` and of `pod_sets` for one workload."""
    group_rows, set_rows = [], []
    for group_index, group in enumerate(groups):
        group_rows.append(
            {
                "workload_uid": uid,
                "index": group_index,
                "name": group.name,
                "policy": group.policy,
                "minimum": group.minimum,
                "topology": group.topology,
                "disruption": group.disruption,
            }
        )
        for index, pod_set in enumerate(group.pod_sets):
            built = msgspec.to_builtins(pod_set)
            set_rows.append(
                {
                    "workload_uid": uid,
                    "group_index": group_index,
                    "index": index,
                    "name": pod_set.name,
                    "count": pod_set.count,
                    "reclaimed": pod_set.reclaimed,
                    "min_count": pod_set.min_count,
                    "first_stage": pod_set.stages[0],
                    "last_stage": pod_set.stages[1],
                    "requests": pod_set.requests,
                    "placement": {key: value for key, value in built.items() if key not in _COLUMNS and value},
                }
            )
    return group_rows, set_rows


def pod_set_from_row(row: Mapping[str, Any]) -> PodSet:
    """The pod set of a row of `pod_sets`."""
    return msgspec.convert(
        {
            **row["placement"],
            "name": row["name"],
            "count": row["count"],
            "requests": row["requests"],
            "stages": (row["first_stage"], row["last_stage"]),
            "reclaimed": row["reclaimed"],
            "min_count": row["min_count"],
        },
        PodSet,
    )


def pod_group_from_row(row: Mapping[str, Any], pod_sets: tuple[PodSet, ...]) -> PodGroup:
    """The pod group of a row of `pod_groups` with its pod sets in order."""
    return PodGroup(
        name=row["name"],
        pod_sets=pod_sets,
        policy=GroupPolicy(row["policy"]),
        minimum=row["minimum"],
        topology=topology_request(row["topology"]),
        disruption=DisruptionMode(row["disruption"]),
    )


def topology_request(value: Any) -> TopologyRequest | None:
    """A topology request from its JSON."""
    return None if value is None else msgspec.convert(value, TopologyRequest)


def admission_to_json(admission: Admission) -> dict[str, Any]:
    """An admission without its uid; the charge is a list of [flavor, resource, amount]."""
    return {
        "queue": admission.queue,
        "pod_sets": admission.pod_sets,
        "charge": [[cell.flavor, cell.resource, amount] for cell, amount in sorted(admission.charge.items())],
        "admitted": admission.admitted,
        "resize_asked": admission.resize_asked,
        "checks": admission.checks,
    }


def admission_from_json(uid: str, value: Any) -> Admission:
    """The admission of a workload from its JSON."""
    return Admission(
        uid=uid,
        queue=value["queue"],
        pod_sets=msgspec.convert(value["pod_sets"], tuple[PodSetAssignment, ...]),
        charge={Cell(flavor, resource): amount for flavor, resource, amount in value["charge"]},
        admitted=value["admitted"],
        resize_asked=value.get("resize_asked", 0),
        checks=tuple(value.get("checks", ())),
    )


def checks(value: Any) -> tuple[Check, ...]:
    """Answers of checks from their JSON."""
    return msgspec.convert(value, tuple[Check, ...]) if value else ()


def relabels(value: Any) -> tuple[Relabel, ...]:
    """Labels that have yet to be written, from their JSON."""
    return msgspec.convert(value, tuple[Relabel, ...]) if value else ()


def peak_requests(groups: Sequence[PodGroup]) -> Mapping[str, int]:
    """What a workload needs at most at one time, by resource: pod sets whose stages overlap are summed."""
    pod_sets = [pod_set for group in groups for pod_set in group.pod_sets]
    peak: dict[str, int] = {}
    for stage in sorted({pod_set.stages[0] for pod_set in pod_sets}):
        need: dict[str, int] = {}
        for pod_set in pod_sets:
            if pod_set.stages[0] <= stage <= pod_set.stages[1]:
                for resource, amount in pod_set.requests.items():
                    need[resource] = need.get(resource, 0) + amount * (pod_set.count - pod_set.reclaimed)
        for resource, amount in need.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    return peak


def builtins(value: Any) -> Any:
    """The value as it will be read back: dicts, lists, strings and numbers."""
    return msgspec.json.decode(encode(value))
