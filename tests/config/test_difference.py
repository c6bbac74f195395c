"""What differs between two versions of an object, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.config.difference import field_changes

FLAVOR = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
OTHER = {"name": "g", "resources": [{"name": "cpu", "nominalQuota": "1"}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": {"b": 1}}, {"a": {}}, [("a.b", 1, None)]),
        (None, {"a": 1}, [("a", None, 1)]),
        ({"a": 1}, None, [("a", 1, None)]),
        ({"a": ["x"]}, {"a": ["y"]}, [("a", ["x"], ["y"])]),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, [("a", ["x", "y"], ["y", "x"])]),
        ({"l": {"a/b": "1"}}, {"l": {"a/b": "2"}}, [('l["a/b"]', "1", "2")]),
        ({"f": [FLAVOR]}, {"f": [OTHER, FLAVOR]}, [("f[g]", None, OTHER)]),
        ({"f": [FLAVOR, OTHER]}, {"f": [OTHER, FLAVOR]}, [("f", [FLAVOR, OTHER], [OTHER, FLAVOR])]),
        (
            {"g": [{"f": [FLAVOR]}]},
            {"g": [{"f": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]},
            [("g[0].f[f].resources[cpu].nominalQuota", "1", "2")],
        ),
    ],
)
def test_fields(before: Any, after: Any, expected: list[tuple[str, Any, Any]]):
    assert field_changes(before, after) == expected
