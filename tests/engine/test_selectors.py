"""Label requirements, affinity, taints and flavor labels."""

from __future__ import annotations

import pytest

from queue_manager.engine.selectors import affine, flavor_matches, meets, tolerates, untolerated
from queue_manager.engine.workload import Requirement, SelectorTerm, Taint, Toleration

LABELS = {"zone": "a", "cores": "8"}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement("zone", "In", ("a", "b")), True),
        (Requirement("zone", "In", ("b",)), False),
        (Requirement("none", "In", ("",)), False),
        (Requirement("zone", "NotIn", ("b",)), True),
        (Requirement("none", "NotIn", ("b",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("cores", "Gt", ("7",)), True),
        (Requirement("cores", "Lt", ("8",)), False),
        (Requirement("zone", "Gt", ("1",)), False),
        (Requirement("zone", "Unknown", ("a",)), False),
    ],
)
def test_requirements(requirement: Requirement, expected: bool) -> None:
    assert meets(requirement, LABELS) is expected


def test_affinity_terms_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    by_name = SelectorTerm((), (Requirement("metadata.name", "In", ("n1",)),))
    assert affine((), LABELS, "n1")
    assert affine((SelectorTerm(), by_name), LABELS, "n1")
    assert not affine((SelectorTerm(), by_name), LABELS, "n2")
    assert not affine((SelectorTerm(),), LABELS, "n1")


def test_tolerations() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    assert tolerates(Toleration("gpu", "Equal", "yes"), taint)
    assert tolerates(Toleration("gpu", "Exists"), taint)
    assert tolerates(Toleration(operator="Exists"), taint)
    assert not tolerates(Toleration("gpu", "Equal", "no"), taint)
    assert not tolerates(Toleration("gpu", "Exists", effect="NoExecute"), taint)
    assert untolerated([Taint("x", "", "PreferNoSchedule"), taint]) == taint
    assert untolerated([taint], [], [Toleration("gpu", "Exists")]) is None


def test_flavors_look_at_their_own_keys_only() -> None:
    flavor = {"tier": "spot"}
    assert flavor_matches(flavor, {"disk": "ssd"}, ())
    assert not flavor_matches(flavor, {"tier": "fixed"}, ())
    other_key = SelectorTerm((Requirement("disk", "In", ("ssd",)),))
    own_key = SelectorTerm((Requirement("tier", "In", ("fixed",)),))
    assert flavor_matches(flavor, {}, (own_key, other_key))
    assert not flavor_matches(flavor, {}, (own_key,))
