"""Whose rules decide."""

from __future__ import annotations

from dataclasses import fields

import pytest

from queue_manager.engine.configuration import Policies
from queue_manager.simulate.semantics import KUEUE_POLICIES


@pytest.mark.parametrize("name", [field.name for field in fields(Policies)])
def test_every_policy_is_other_under_kueues_semantics(name: str):
    """A new policy must be put into KUEUE_POLICIES, or it would decide there, too."""
    assert getattr(KUEUE_POLICIES, name) != getattr(Policies(), name)
