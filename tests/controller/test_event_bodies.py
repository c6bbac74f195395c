"""Events of Kubernetes as we write them."""

from __future__ import annotations

from datetime import UTC, datetime

from queue_manager.cluster.port import PODS
from queue_manager.controller.event_bodies import LONGEST_MESSAGE, event_body, event_name


def test_an_event_says_what_it_is_whom_it_is_about_and_no_more_than_the_api_server_takes() -> None:
    pod = {"metadata": {"name": "p" * 250, "namespace": "ns", "uid": "u", "labels": {"a": "b"}}}
    now = datetime(2026, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    name = event_name(pod, "3")
    body = event_body(name, PODS, pod, "NoPlace", "x" * 2000, "Warning", "queue-manager", now)
    assert len(name) <= 253
    assert (body["apiVersion"], body["kind"]) == ("v1", "Event")
    assert body["metadata"] == {"name": name, "namespace": "ns"}
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": pod["metadata"]["name"], "uid": "u"}
    assert body["involvedObject"] == about
    assert (body["reason"], body["type"], len(body["message"])) == ("NoPlace", "Warning", LONGEST_MESSAGE)
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-01-01T12:00:00Z"
