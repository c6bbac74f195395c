"""The cache: what it gives out is the same whether or not it was packed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster import cache as caches
from queue_manager.cluster.cache import Cache


def job(number: int, **more: Any) -> dict[str, Any]:
    owner = {"kind": "JobSet", "name": "set", "uid": f"set-{number % 2}", "controller": True}
    metadata = {"name": f"job-{number}", "namespace": f"ns-{number % 2}", "uid": f"uid-{number}"}
    return {
        "kind": "Job",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"suspend": True, "parallelism": 2**40, "note": "é\0", "template": None, **more},
    }


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(caches, "MOST_UNPACKED", 2)
    packing = Cache(packs=True)
    for number in range(6):
        packing.put(job(number))
    return packing


def test_most_objects_are_packed(cache: Cache) -> None:
    assert [type(kept) for kept in cache._objects.values()] == [bytes] * 4 + [dict] * 2
    cache.by_uid("uid-0")
    assert [type(kept) for kept in cache._objects.values()] == [dict, *[bytes] * 4, dict]


def test_packed_objects_are_found_in_every_way(cache: Cache) -> None:
    assert list(cache) == [job(number) for number in range(6)]
    assert [cache.by_uid(f"uid-{number}") for number in range(6)] == [job(number) for number in range(6)]
    assert [cache.get(f"ns-{number % 2}", f"job-{number}") for number in range(6)] == [job(n) for n in range(6)]
    assert cache.owned_by("set-1") == [job(1), job(3), job(5)]
    assert cache.in_namespace("ns-0") == [job(0), job(2), job(4)]
    assert cache.uids() == [f"uid-{number}" for number in range(6)]
    assert len(cache) == 6


def test_a_packed_object_is_replaced_and_removed_as_others_are(cache: Cache) -> None:
    assert cache.put(job(0, suspend=False)) == job(0)
    assert cache.get("ns-0", "job-0") == job(0, suspend=False)
    assert cache.remove(("ns-1", "job-1")) == job(1)
    assert cache.remove(("ns-1", "job-1")) is None
    assert cache.by_uid("uid-1") is None
    assert cache.owned_by("set-1") == [job(3), job(5)]
    assert cache.remove(("ns-0", "job-0")) == job(0, suspend=False)
    assert list(cache) == [job(number) for number in range(2, 6)]
    for number in range(6, 9):
        cache.put(job(number))
    assert len(cache) == 7
    assert sum(isinstance(kept, dict) for kept in cache._objects.values()) == 2
