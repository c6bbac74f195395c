"""Who may end a stop: whoever has a role where its author had one, not who has one below that alone."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store import records
from queue_manager.store.store import Store
from tests.api.callers import bearer, server, settle, token
from tests.store.builders import NOW

OWN = "research/nlp"
WHOLE, ABOVE, HERE, BELOW = "", "research", OWN, "bert"
"""Nodes of operators: the company's tree, two cohorts within each other, a queue below."""


class Company:
    """Operators at nodes within each other."""

    def __init__(self, store: Store) -> None:
        settle(store)
        self.client: TestClient = server(store)
        self._of = {node: bearer(token(store, "operator", node)) for node in (WHOLE, ABOVE, HERE, BELOW)}
        self._of["vision"] = bearer(token(store, "queue-admin", "vision"))

    def stop(self, who: str, policy: str, path: str = "queues/bert", reason: str = "why") -> Any:
        body = {"policy": policy, "reason": reason}
        return self.client.post(f"/api/v1/{path}/stop", json=body, headers=self._of[who])

    def listed(self) -> list[tuple[str, str, str]]:
        """Name, policy and authority of what is stopped."""
        found = self.client.get("/api/v1/stops", headers=self._of[WHOLE]).json()["items"]
        return [(each["name"], each["policy"], each["authority"]) for each in found]


@pytest.fixture
def company(store: Store) -> Company:
    return Company(store)


@pytest.mark.parametrize("path", ["queues/bert", "local-queues/team-bert/default"])
@pytest.mark.parametrize(
    ("author", "authority", "may", "may_not"),
    [
        (WHOLE, "", (WHOLE,), (ABOVE, HERE, BELOW)),
        (ABOVE, "Cohort/research", (WHOLE, ABOVE), (HERE, BELOW)),
        (HERE, f"Cohort/{OWN}", (WHOLE, ABOVE, HERE), (BELOW,)),
        (BELOW, "Queue/bert", (WHOLE, ABOVE, HERE, BELOW), ()),
    ],
)
def test_a_stop_is_ended_from_where_it_was_set_or_from_above(
    company: Company, path: str, author: str, authority: str, may: tuple[str, ...], may_not: tuple[str, ...]
):
    for who in may:
        stopped = company.stop(author, "Hold", path)
        assert (stopped.status_code, stopped.json()["authority"]) == (200, authority)
        before = company.listed()
        for other in may_not:
            refused = company.stop(other, "None", path)
            assert refused.status_code == 403, refused.text
            where = f"at the cohort {authority.partition('/')[2]!r}" if authority else "at the whole tree"
            assert f"needs the role operator {where}" in refused.json()["detail"]
            assert company.listed() == before
        assert company.stop(who, "None", path).json()["policy"] == "None"
        assert company.listed() == []


def test_from_below_a_stop_is_made_stricter_but_neither_looser_again_nor_ones_own(company: Company):
    company.stop(ABOVE, "Hold")
    assert company.stop(BELOW, "Hold", reason="mine").status_code == 403
    stricter = company.stop(BELOW, "HoldAndDrain")
    assert (stricter.status_code, stricter.json()["authority"]) == (200, "Cohort/research")
    assert company.stop(BELOW, "HoldAndDrain").status_code == 200  # asked for twice
    for policy in ("Hold", "None"):
        assert company.stop(BELOW, policy).status_code == 403
    assert company.listed() == [("bert", "HoldAndDrain", "Cohort/research")]
    assert company.stop(ABOVE, "Hold").status_code == 200


def test_who_stops_from_above_what_is_stopped_already_takes_it_over(company: Company):
    company.stop(BELOW, "Hold")
    assert company.stop(ABOVE, "Hold", reason="we, too").json()["authority"] == "Cohort/research"
    assert company.stop(BELOW, "None").status_code == 403


def test_a_cohorts_stop_is_ended_by_nobody_below_it_nor_beside_it(company: Company):
    company.stop(WHOLE, "HoldAndDrain", f"cohorts/{OWN}")
    assert company.stop(HERE, "None", f"cohorts/{OWN}").status_code == 403
    assert company.stop("vision", "None", f"cohorts/{OWN}").status_code == 403
    # Its own stop, below that one, is still its own to set and to end; the answer says what counts.
    assert company.stop(BELOW, "Hold").json()["effective"] == "HoldAndDrain"
    assert company.stop(BELOW, "None").json()["effective"] == "HoldAndDrain"


def test_where_the_authority_is_gone_a_role_at_the_whole_tree_ends_the_stop(company: Company, store: Store):
    company.stop(HERE, "Hold")
    loaded = store.load_configuration()[1]
    moved = [
        records.ConfigObject(row.kind, row.name, {**row.spec, "cohort": "research"}, row.namespace)
        for row in loaded
        if row.kind == "Queue" and row.spec.get("cohort") == OWN
    ]
    store.apply_configuration(moved, delete=[("Cohort", "", OWN)], author="root", reason="x", now=NOW, source="test")
    assert company.stop(BELOW, "None").status_code == 403
    assert company.stop(WHOLE, "None").status_code == 200


def test_a_stop_from_before_authorities_were_kept_is_ended_as_it_was_then(company: Company, store: Store):
    spec = {"kind": "Queue", "name": "bert", "policy": "Hold", "by": "ada", "reason": "x", "at": NOW.isoformat()}
    store.apply_configuration(
        [records.ConfigObject("Stop", "Queue/bert", spec)], author="ada", reason="x", now=NOW, source="test"
    )
    assert company.listed() == [("bert", "Hold", None)]
    assert company.stop(BELOW, "None").status_code == 200
