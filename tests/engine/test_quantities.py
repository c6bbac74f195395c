"""Quantities as Kubernetes defines them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.quantities import exact, parse, show, show_time


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1500m", 1500),
        ("cpu", "0.1", 100),
        ("cpu", "1u", 1),
        ("cpu", "2k", 2_000_000),
        ("memory", "1Gi", 1 << 30),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "1e3", 1000),
        ("memory", "1E3", 1000),
        ("memory", "1E", 10**18),
        ("memory", "1Ei", 1 << 60),
        ("memory", "100m", 1),
        ("memory", "12e-1", 2),
        ("memory", "1T", 10**12),
        ("memory", "+.5Ki", 512),
        ("nvidia.com/gpu", 8, 8),
        ("nvidia.com/gpu", "1n", 1),
        ("pods", "0", 0),
    ],
)
def test_parse(resource: str, text: str | int, amount: int) -> None:
    assert parse(resource, text) == amount


@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1gi", "1KI", "1e", "--1", "1ki", "0x10", "1_000", "Gi", "1.2.3", "1e9999"]
)
def test_what_is_no_quantity_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity") as refused:
        parse("memory", text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["9" * 5000, "0." + "3" * 5000, "x" * 5000])
def test_a_text_that_is_too_long_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.\.\.' has 500[02] characters, a quantity has at most 1000$") as refused:
        exact(text)
    assert len(str(refused.value)) < 100
    assert exact("9" * 1000) == 10**1000 - 1


def test_negative_amounts_are_refused_with_the_resource() -> None:
    with pytest.raises(ValueError, match=r"'-1' is negative; an amount of cpu is at least 0"):
        parse("cpu", "-1")


@given(st.integers(0, 10**15), st.sampled_from(["cpu", "memory", "gpu"]))
def test_show_loses_nothing(amount: int, resource: str) -> None:
    assert parse(resource, show(resource, amount)) == amount


def test_show_is_for_people() -> None:
    assert [show("cpu", 1500), show("cpu", -250), show("memory", 64 << 30), show("gpu", 8)] == [
        "1.5",
        "-0.25",
        "64Gi",
        "8",
    ]
    assert exact("1500m") * 2 == 3


@pytest.mark.parametrize(
    "text",
    ["1970-01-01 00:00:00", "1999-12-31 23:59:59", "2000-02-29 12:00:00", "2024-03-01 00:00:01", "2100-02-28 06:07:08"],
)
def test_times_are_shown_in_utc(text: str) -> None:
    at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    assert show_time(int(at.timestamp()) * 1_000_000 + 999_999) == f"{text} UTC"
