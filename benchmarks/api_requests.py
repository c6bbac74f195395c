"""What an API server has been asked, by its own metrics."""

from __future__ import annotations

from collections import Counter

from tests.control_plane.cluster import ControlPlane

VERBS = frozenset({"POST", "PATCH", "PUT", "DELETE", "GET", "LIST"})
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


def api_requests(cluster: ControlPlane) -> Counter[tuple[str, str]]:
    """(verb, resource or resource/subresource) -> requests that it has answered; watches are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    text = cluster.client.request("GET", "/metrics", timeout=60)["text"]
    for line in text.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line[len("apiserver_request_total{") :].rpartition("} ")
        found = dict(part.split("=", 1) for part in labels.replace('"', "").split(",") if "=" in part)
        if found.get("verb") in VERBS and found.get("resource"):
            what = "/".join(filter(None, (found["resource"], found.get("subresource", ""))))
            counts[found["verb"], what] += round(float(value))
    return counts
