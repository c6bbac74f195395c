"""Whose rules decide."""

from __future__ import annotations

from dataclasses import fields

import pytest

from queue_manager.engine.configuration import Policies
from queue_manager.simulate.semantics import KUEUE_POLICIES, Semantics


@pytest.mark.parametrize("name", [field.name for field in fields(Policies)])
def test_every_policy_is_other_under_kueues_semantics(name: str):
    ours, kueues = getattr(Policies(), name), getattr(KUEUE_POLICIES, name)
    assert {ours, kueues} == {True, False}


def test_rules_of_our_own_are_off_and_kueues_on():
    assert not KUEUE_POLICIES.hold_freed_quota
    assert KUEUE_POLICIES.resume_flavor_scan
    assert Semantics.KUEUE.policies == KUEUE_POLICIES
    assert Semantics.OWN.policies == Policies()
