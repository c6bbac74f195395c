"""Our labels and annotations: what is refused, what is only remarked on, and how the messages name the field."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.engine.workload import SliceLayer, TopologyMode, TopologyRequest
from queue_manager.kinds.annotation_faults import Severity, validate
from queue_manager.kinds.annotations import (
    BadValue,
    checkpointed_at,
    max_run_time,
    parse_duration,
    topology_request,
)
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.registry import validate as validate_all
from tests.kinds.world import World, container, job, job_set, pod_template, replicated_job, train_job

SECOND = 1_000_000


def on_job(kind: Any = None, **annotations: str) -> Any:
    metadata = {
        "annotations": {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    }
    if kind == "JobSet":
        return job_set(replicated_job("a", pod_template(container("a"))), metadata=metadata)[1]
    if kind == "TrainJob":
        return train_job("torch", metadata=metadata)[1]
    return job(pod_template(container("a")), parallelism=4, metadata=metadata)[1]


def on_template(**annotations: str) -> Any:
    metadata = {
        "annotations": {f"queue-manager.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    }
    return job(pod_template(container("a"), metadata=metadata))[1]


def only(obj: Any) -> tuple[str, str, Severity]:
    findings = validate(obj)
    assert len(findings) == 1, findings
    return findings[0].field, findings[0].message, findings[0].severity


def test_nothing_to_say() -> None:
    assert validate(on_job()) == []
    assert validate(on_job(required_topology="topology.kubernetes.io/zone", max_run_time="36h", min_count="2")) == []
    assert validate(on_template(preferred_topology="rack", podset_group="gang")) == []
    assert validate(on_job(unconstrained_topology="true")) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("required_topology", "", "must be a node label key such as topology/rack, not ''"),
        ("required_topology", "a rack", "must be a node label key such as topology/rack, not 'a rack'"),
        ("preferred_topology", "a//b", "must be a node label key such as topology/rack, not 'a//b'"),
        ("unconstrained_topology", "yes", "must be true, not 'yes'"),
        ("max_run_time", "forever", "must be a duration such as 90m or 36h, not 'forever'"),
        ("max_run_time", "0s", "must be longer than nothing"),
        ("min_count", "0", "must be a whole number of at least 1, not '0'"),
        ("min_count", "5", "must not be above spec.parallelism (4), but is 5"),
    ],
)
def test_bad_values(key: str, value: str, message: str) -> None:
    field = f"metadata.annotations[queue-manager.io/{key.replace('_', '-')}]"
    assert only(on_job(**{key: value})) == (field, message, Severity.ERROR)


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_min_count_where_the_kind_can_not_shrink(kind: str) -> None:
    field, message, severity = only(on_job(kind, min_count="1"))
    assert field == "metadata.annotations[queue-manager.io/min-count]"
    assert message == f"is refused: a {kind} can't run with fewer pods"
    assert severity is Severity.ERROR


def test_two_topology_wishes() -> None:
    obj = on_job(required_topology="rack", preferred_topology="block")
    assert only(obj) == (
        "metadata.annotations[queue-manager.io/required-topology]",
        "can't stand beside queue-manager.io/preferred-topology",
        Severity.ERROR,
    )
    with pytest.raises(Unresolvable, match="can't stand beside"):
        JobKind().resolve(obj, World())


def test_pod_template_is_named() -> None:
    assert only(on_template(required_topology="?"))[0] == (
        "spec.template.metadata.annotations[queue-manager.io/required-topology]"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("required_topolgy", "is not known; did you mean queue-manager.io/required-topology?"),
        ("queue", "is a label, not an annotation"),
        ("podset_group", "has a meaning on pod templates only"),
    ],
)
def test_warnings(key: str, message: str) -> None:
    assert only(on_job(**{key: "x"}))[1:] == (message, Severity.WARNING)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"slice_topology": "rack"}, "needs metadata.annotations[queue-manager.io/slice-size] beside it"),
        ({"slice_size": "4"}, "needs metadata.annotations[queue-manager.io/slice-topology] beside it"),
        ({"slice_topology": "rack,host", "slice_size": "4"}, "must give one size for each of the 2 levels, not 1"),
        ({"slice_topology": "rack", "slice_size": "0"}, "must be a whole number of at least 1, not '0'"),
        (
            {"slice_topology": "rack,host", "slice_size": "4,3"},
            "must be at most 3 sizes, each dividing the one before, not '4,3'",
        ),
        (
            {"slice_topology": "a b", "slice_size": "4"},
            "must be at most 3 node label keys with commas between, not 'a b'",
        ),
    ],
)
def test_slices_that_make_no_sense(annotations: dict[str, str], message: str) -> None:
    assert only(on_job(**annotations))[1:] == (message, Severity.ERROR)


def test_slices_are_read_outermost_first() -> None:
    metadata = View(on_job(slice_topology="rack, host", slice_size="8,2"))["metadata"]
    assert topology_request(metadata) == TopologyRequest(
        TopologyMode.UNCONSTRAINED, "", (SliceLayer("rack", 8), SliceLayer("host", 2))
    )
    metadata = View(on_job(required_topology="block", slice_topology="rack", slice_size="8"))["metadata"]
    assert topology_request(metadata) == TopologyRequest(TopologyMode.REQUIRED, "block", (SliceLayer("rack", 8),))


@pytest.mark.parametrize("value", ["", "a b", "-", "x" * 64])
def test_bad_queue_label(value: str) -> None:
    obj = on_job()
    obj["metadata"]["labels"] = {"queue-manager.io/queue": value}
    field, message, severity = only(obj)
    assert (field, severity) == ("metadata.labels[queue-manager.io/queue]", Severity.ERROR)
    assert message == f"must be a name, not {value!r}"


def test_annotation_given_as_a_label() -> None:
    obj = on_job()
    obj["metadata"]["labels"] = {"queue-manager.io/min-count": "1"}
    assert only(obj)[1:] == ("is not known; it is an annotation, not a label", Severity.WARNING)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("36h", 129600), ("1h30m", 5400), ("45s", 45), ("2d", 172800), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * SECOND
    assert max_run_time(on_job(max_run_time=text)) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "h", "1", "-1h", "1 h", "1w", "1h" * 99, "٣h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(BadValue):
        parse_duration(text)


def test_max_run_time_that_is_not_given_or_bad() -> None:
    assert max_run_time(on_job()) is None
    with pytest.raises(Unresolvable) as found:
        max_run_time(on_job(max_run_time="x"))
    assert found.value.field == "metadata.annotations[queue-manager.io/max-run-time]"


def test_malformed_metadata_is_a_finding() -> None:
    obj = on_job()
    obj["metadata"]["annotations"] = ["queue"]
    assert only(obj)[:2] == ("metadata.annotations", "metadata.annotations must be an object")


def test_what_can_not_be_resolved_yet_is_a_warning() -> None:
    obj = job(pod_template(container("a"), resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}]))[1]
    findings = validate_all(obj, World())
    assert [(finding.field, finding.severity) for finding in findings] == [
        ("spec.template.spec.resourceClaims[0].resourceClaimName", Severity.WARNING)
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800),
        ("2026-01-31T13:00:00.5+01:00", 1_769_860_800.5),
        ("1960-01-01T00:00:00Z", 0),
        ("yesterday", 0),
        ("2026-01-31T12:00:00", 0),
        ("", 0),
    ],
)
def test_when_a_job_wrote_a_checkpoint(text: str, seconds: float) -> None:
    assert checkpointed_at(on_job(checkpointed_at=text)) == seconds * SECOND


def test_a_checkpoint_time_that_can_not_be_read_is_said_and_refused_to_nobody() -> None:
    assert validate(on_job(checkpointed_at="2026-01-31T12:00:00Z")) == []
    message = "must be a time such as 2026-01-31T12:00:00Z, not 'now': it is ignored"
    assert only(on_job(checkpointed_at="now")) == (
        "metadata.annotations[queue-manager.io/checkpointed-at]",
        message,
        Severity.WARNING,
    )
