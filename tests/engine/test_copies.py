"""Copies of records: equal but for what is given, and nothing that a record lacks."""

from __future__ import annotations

import dataclasses

import pytest

from queue_manager.engine.copies import replace
from queue_manager.engine.workload import PodGroup, PodSet


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        assert self.low <= self.high


@dataclasses.dataclass(frozen=True, slots=True)
class _Wider(PodGroup):
    extra: str = "none"


RECORDS = (
    PodSet("node", 4, {"cpu": 1000}, stages=(1, 2), reclaimed=1),
    PodGroup("main", (PodSet("node", 4, {"cpu": 1000}),), minimum=3),
    _Wider("main", (), extra="more"),
)


@pytest.mark.parametrize("record", RECORDS)
def test_a_copy_is_what_dataclasses_make(record: PodSet | PodGroup) -> None:
    copy = replace(record, name="other")
    assert copy == dataclasses.replace(record, name="other")
    assert type(copy) is type(record)
    assert record.name != "other"
    assert replace(record) == record
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.name = "third"  # type: ignore[misc]


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="nodes"):
        replace(RECORDS[0], nodes=1)  # type: ignore[call-arg]


def test_what_a_record_sees_to_when_it_is_made_is_not_passed_over() -> None:
    with pytest.raises(TypeError, match="_Checked"):
        replace(_Checked(1, 2), low=3)
