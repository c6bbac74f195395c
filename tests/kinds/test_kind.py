"""What a person is told of a job that can't be read."""

from __future__ import annotations

import pytest

from queue_manager.kinds.kind import Unresolvable

FIELD = "spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("field", "message", "told"),
    [
        (FIELD, "must have a name", f"{FIELD}: must have a name"),
        (FIELD, f"{FIELD} must have a name", f"{FIELD} must have a name"),
        ("", "there is nothing to run", "there is nothing to run"),
    ],
)
def test_the_field_is_named_once(field: str, message: str, told: str) -> None:
    assert Unresolvable("Malformed", field, message).told == told
