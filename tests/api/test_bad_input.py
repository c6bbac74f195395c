"""Bad input of every sort: refused whole, with a message of its own that names line, object, field and a way out."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from queue_manager.store.store import Store
from tests.api.world import configure

CONFIG = "/api/v1/config"
HEAD = "apiVersion: queue-manager.io/v1\n"
KUEUE = "apiVersion: kueue.x-k8s.io/v1beta1\n"


def queue(quota: str, *, name: str = "new", cohort: str = "research", flavor: str = "h100", more: str = "") -> str:
    """A queue; its quota is in line 8, what is `more` in line 9."""
    above = f"cohort: {cohort}" if cohort else "namespaceSelector: {}"
    return (
        f"{HEAD}kind: Queue\nmetadata: {{name: {name}}}\nspec:\n  {above}\n  resourceGroups:\n"
        f"  - coveredResources: [cpu]\n    flavors: [{{name: {flavor}, resources: [{{name: cpu, {quota}}}]}}]\n{more}"
    )


def one(kind: str, name: str, spec: str) -> str:
    """An object whose spec is line 4."""
    return f"{HEAD}kind: {kind}\nmetadata: {{{name}}}\nspec: {spec}\n"


FIELD = "spec.resourceGroups[0].flavors[0].resources[0]."
CASES: dict[str, tuple[str, int, str, str, str]] = {
    "cycle": (
        one("Cohort", "name: company", "{parent: research}"),
        4,
        "spec.parent",
        "cohorts form a cycle: company -> research -> company",
        "can't be its own ancestor",
    ),
    "unknown parent of a cohort": (
        one("Cohort", "name: speech", "{parent: reserch}"),
        4,
        "spec.parent",
        "unknown cohort 'reserch'",
        "did you mean 'research'?",
    ),
    "unknown cohort of a queue": (
        queue("nominalQuota: 1", cohort="zzz"),
        5,
        "spec.cohort",
        "unknown cohort 'zzz'",
        "make a Cohort of this name, it may be empty",
    ),
    "two objects of one name": (
        one("Cohort", "name: a", "{}") + "---\n" + one("Cohort", "name: a", "{}"),
        8,
        "metadata.name",
        "is given twice",
        "first in line 1; remove one",
    ),
    "a lending limit above what is owned": (
        queue("nominalQuota: 1, lendingLimit: 2"),
        8,
        f"{FIELD}lendingLimit",
        "2 is more than the nominalQuota 1",
        "a queue can lend no more than it owns",
    ),
    "a borrowing limit without cohort": (
        queue("nominalQuota: 1, borrowingLimit: 2", cohort=""),
        8,
        f"{FIELD}borrowingLimit",
        "has no meaning without a cohort",
        "set spec.cohort, or remove it",
    ),
    "a weight below 0": (
        one("Cohort", "name: research", "{parent: company, fairSharing: {weight: -1}}"),
        4,
        "spec.fairSharing.weight",
        "'-1' is negative",
        "write it like",
    ),
    "a quantity that does not parse": (
        queue("nominalQuota: 1 core"),
        8,
        f"{FIELD}nominalQuota",
        "'1 core' is not a quantity",
        "write it like 8, 500m, 1.5 or 64Gi",
    ),
    "a quantity that overflows": (
        queue("nominalQuota: 9223372036854775807"),
        8,
        f"{FIELD}nominalQuota",
        "is too large",
        "at most 2^63 - 1 base units",
    ),
    "a local queue that points nowhere": (
        one("LocalQueue", "name: l, namespace: n", "{queue: nlpp}"),
        4,
        "spec.queue",
        "unknown queue 'nlpp'",
        "did you mean 'nlp'?",
    ),
    "YAML with a duplicate key": (
        queue("nominalQuota: 1", more="  cohort: company\n"),
        9,
        "",
        "key 'cohort' is given twice",
        "first in line 5; remove one",
    ),
    "deep nesting": (f"a: {'[' * 100}{']' * 100}", 1, "", "nested too deeply", "at most 40 levels are read"),
    "wrong type": (
        one("Cohort", "name: a", "{parent: [research]}"),
        4,
        "spec.parent",
        "must be text, is a list",
        "",
    ),
    "a unicode name": (
        one("Cohort", "name: Zürich", "{}"),
        3,
        "metadata.name",
        "'Zürich' is not a name",
        "",
    ),
    "a name that looks like another": (
        one("Cohort", "name: reѕearch", "{}"),
        3,
        "metadata.name",
        "is not a name: lower-case letters",
        "",
    ),
}


@pytest.fixture
def company(client: TestClient, store: Store) -> TestClient:
    """A client of a company that is configured."""
    configure(store)
    return client


@pytest.mark.parametrize("how", ["apply", "plan", "diff"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_its_own_message(company: TestClient, store: Store, case: str, how: str):
    text, line, field, message, hint = CASES[case]
    send = company.put if how == "apply" else company.post
    path = CONFIG if how == "apply" else f"{CONFIG}/{how}"
    answer = send(path, content=text.encode(), params={"file": "new.yaml"})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["file"], error["line"], error["field"]) == ("new.yaml", line, field)
    assert message in error["message"]
    assert hint in error["hint"]
    assert store.load_configuration()[0] == 1


def test_every_case_has_another_message():
    messages = [message for _, _, _, message, _ in CASES.values()]
    assert len(set(messages)) == len(messages)


def test_all_are_told_at_once(company: TestClient):
    """But for what can't be read on: a file that is no YAML any more, or a second object of a name."""
    cases = {case: found for case, found in CASES.items() if case not in ("YAML with a duplicate key", "deep nesting")}
    texts = [found[0].replace("{name: new}", f"{{name: new-{number}}}") for number, found in enumerate(cases.values())]
    answer = company.put(CONFIG, content="---\n".join(texts).encode())
    told = [error["message"] for error in answer.json()["errors"]]
    assert [case for case, found in cases.items() if not any(found[3] in each for each in told)] == []


def test_what_is_wrong_with_one_object_is_told_at_once_too(company: TestClient):
    """What its fields are, and what only the other objects can tell."""
    text = queue("nominalQuota: x", cohort="reserch").replace("namespaceSelector", "selector")
    text += "---\n" + queue("nominalQuota: 1", name="other", cohort="7", flavor="h200", more="  stopPolicy: Stop\n")
    errors = company.put(CONFIG, content=text).json()["errors"]
    assert [(error["name"], error["field"]) for error in errors] == [
        ("new", "spec.cohort"),
        ("new", f"{FIELD}nominalQuota"),
        ("other", "spec.cohort"),
        ("other", "spec.stopPolicy"),
    ]


def test_a_flavor_in_use_is_not_removed(company: TestClient, store: Store):
    answer = company.delete("/api/v1/flavors/h100", headers={"If-Match": "*"})
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert {error["name"] for error in errors} == {"nlp", "vision", "ranking"}
    assert {error["message"] for error in errors} == {"flavor 'h100' is still used here"}
    assert store.load_configuration()[0] == 1


def test_a_cohort_that_others_name_is_not_removed(company: TestClient):
    answer = company.delete("/api/v1/cohorts/research", headers={"If-Match": "*"})
    assert answer.status_code == 422
    told = {(error["name"], error["field"], error["message"]) for error in answer.json()["errors"]}
    assert told == {(name, "spec.cohort", "cohort 'research' is still used here") for name in ("nlp", "vision")}


def test_a_body_of_50_mb(company: TestClient):
    answer = company.put(CONFIG, content=b"#" * 50_000_000)
    assert (answer.status_code, answer.json()["detail"]) == (413, "at most 32 MiB are read here; apply it in parts")


def test_a_patch_to_an_unknown_parent(company: TestClient):
    answer = company.patch("/api/v1/queues/nlp", json={"spec": {"cohort": "reserch"}}, headers={"If-Match": "*"})
    assert answer.status_code == 422
    assert "unknown cohort 'reserch'" in answer.text


def test_kueues_objects_may_name_a_cohort_that_nobody_declares_and_stay_valid(company: TestClient):
    """As in Kueue, where it is an empty one; what is in force may be exported, changed and applied again."""
    spec = "{cohort: implied, namespaceSelector: {}}"
    put = company.put(CONFIG, content=f"{KUEUE}kind: ClusterQueue\nmetadata: {{name: theirs}}\nspec: {spec}\n")
    assert put.status_code == 200, put.text
    again = company.put(CONFIG, content=company.get(CONFIG).text)
    assert again.status_code == 200, again.text
    patched = company.patch("/api/v1/queues/theirs", json={"spec": {"stopPolicy": "Hold"}}, headers={"If-Match": "*"})
    assert patched.status_code == 200, patched.text


def test_a_rollback_to_what_was_valid_once(company: TestClient):
    spec = "{cohort: implied, namespaceSelector: {}}"
    company.put(CONFIG, content=f"{KUEUE}kind: ClusterQueue\nmetadata: {{name: theirs}}\nspec: {spec}\n")
    company.put(CONFIG, content=one("Cohort", "name: implied", "{parent: company}"))
    assert company.post("/api/v1/revisions/2/rollback").json()["changes"][0]["action"] == "deleted"


def test_a_cohorts_quota_below_what_is_guaranteed_under_it_is_no_limit_and_that_is_said(company: TestClient):
    """A cohort's quota is a pool beside those of its queues, so none is too small; who means a limit is told."""
    text = queue("nominalQuota: 8", name="x").replace("kind: Queue", "kind: Cohort").replace("cohort:", "parent:")
    below = queue("nominalQuota: 10", name="y", cohort="x")
    warnings = company.put(CONFIG, content=f"{text}---\n{below}").json()["warnings"]
    [warning] = [warning for warning in warnings if warning["kind"] == "Cohort"]
    assert (warning["name"], warning["field"]) == ("x", f"{FIELD}nominalQuota")
    assert warning["message"] == "8 is less than the 10 guaranteed below, and comes on top of them: it limits nobody"
