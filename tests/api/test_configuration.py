"""Apply, export, single objects and revisions over REST."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from queue_manager.config.export import export
from queue_manager.config.parse import parse_objects
from queue_manager.store.store import Store
from tests.api.world import SMALL, configure, document, queue

CONFIG = "/api/v1/config"
ANY = {"If-Match": "*"}
TEXT = export(parse_objects(SMALL).objects)


def put(client: TestClient, text: str, **query: object) -> dict:
    answer = client.put(CONFIG, content=text.encode(), params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_apply_then_export_gives_the_same_text(client: TestClient):
    applied = put(client, TEXT, reason="first")
    assert applied["revision"] == 1
    assert {change["action"] for change in applied["changes"]} == {"created"}
    assert len(applied["changes"]) == len(SMALL)
    answer = client.get(CONFIG)
    assert answer.text == TEXT
    assert answer.headers["content-type"].startswith("application/yaml")
    assert answer.headers["etag"] == '"1"'


def test_applying_the_same_again_makes_no_revision(client: TestClient):
    put(client, TEXT)
    assert put(client, TEXT) == {"revision": 1, "changes": [], "warnings": []}


def test_a_file_changes_only_what_it_holds(client: TestClient):
    put(client, TEXT)
    applied = put(client, export(parse_objects([queue("nlp", "research", 128)]).objects))
    assert applied["changes"] == [{"action": "changed", "kind": "Queue", "namespace": "", "name": "nlp"}]
    assert client.get("/api/v1/queues/vision").status_code == 200


def test_every_error_is_told_and_nothing_is_applied(client: TestClient, store: Store):
    put(client, TEXT)
    text = """\
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {name: fine}
spec: {cohort: research, namespaceSelector: {}}
---
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {name: bad}
spec:
  cohrt: research
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: h200, resources: [{name: cpu, nominalQuota: -1}]}]
---
apiVersion: queue-manager.io/v1
kind: LocalQueue
metadata: {name: l, namespace: n}
spec: {queue: nlpp}
"""
    answer = client.put(CONFIG, content=text, params={"file": "teams.yaml"})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["title"] == "Configuration is not valid"
    assert [(e["file"], e["line"], e["kind"], e["name"], e["field"]) for e in problem["errors"]] == [
        ("teams.yaml", 10, "Queue", "bad", "spec.cohrt"),
        (
            "teams.yaml",
            13,
            "Queue",
            "bad",
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        ("teams.yaml", 18, "LocalQueue", "n/l", "spec.queue"),
    ]
    assert problem["errors"][-1]["hint"] == "did you mean 'nlp'?"
    assert store.load_configuration()[0] == 1


def test_warnings_are_given_for_what_was_applied(client: TestClient):
    put(client, TEXT)
    applied = put(client, export(parse_objects([document("Queue", "closed", {"cohort": "research"})]).objects))
    assert [(w["name"], w["message"]) for w in applied["warnings"]] == [("closed", "no namespace may use this queue")]


def test_kueue_objects_are_applied_as_they_are(client: TestClient):
    text = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {cohortName: all, namespaceSelector: {}}
"""
    assert put(client, text)["changes"][0]["kind"] == "Queue"
    assert "cohort: all" in client.get(CONFIG).text


def test_prune_deletes_only_what_the_owner_made(client: TestClient):
    put(client, TEXT, owner="central")
    team = [queue("speech", "research", 8), document("LocalQueue", "default", {"queue": "speech"}, "team-speech")]
    put(client, export(parse_objects(team).objects), owner="team")
    applied = put(client, export(parse_objects(team[:1]).objects), owner="team", prune=True)
    assert [(change["action"], change["kind"]) for change in applied["changes"]] == [("deleted", "LocalQueue")]
    assert client.get("/api/v1/queues/nlp").status_code == 200


def test_prune_without_owner_is_refused(client: TestClient):
    answer = client.put(CONFIG, content=TEXT, params={"prune": True})
    assert answer.status_code == 422
    assert "owner" in answer.json()["detail"]


def test_if_match_refuses_what_was_made_for_another_revision(client: TestClient):
    put(client, TEXT)
    answer = client.put(CONFIG, content=TEXT, headers={"If-Match": '"7"'})
    assert answer.status_code == 412
    assert client.put(CONFIG, content=TEXT, headers={"If-Match": '"1"'}).status_code == 200


def test_applies_at_the_same_time_all_succeed_one_after_the_other(client: TestClient):
    put(client, TEXT)
    answers: list[int] = []

    def apply(index: int) -> None:
        text = export(parse_objects([queue(f"team-{index}", "research", 8)]).objects)
        answers.append(client.put(CONFIG, content=text).status_code)

    threads = [threading.Thread(target=apply, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    assert sum("team-" in item["metadata"]["name"] for item in client.get("/api/v1/queues").json()["items"]) == 4


def test_what_others_need_is_not_deleted(client: TestClient):
    put(client, TEXT)
    answer = client.delete("/api/v1/flavors/h100", headers=ANY)
    assert answer.status_code == 422
    assert {error["message"] for error in answer.json()["errors"]} == {"flavor 'h100' is still used here"}
    assert {error["hint"] for error in answer.json()["errors"]} == {"take it out here first, or keep it"}
    assert {error["name"] for error in answer.json()["errors"]} == {"nlp", "vision", "ranking"}


def test_one_object_is_read_changed_and_deleted(client: TestClient):
    put(client, TEXT)
    answer = client.get("/api/v1/local-queues/team-nlp/default")
    assert answer.json() == SMALL[6]
    tag = answer.headers["etag"]
    changed = {**answer.json(), "spec": {"queue": "vision"}}
    path = "/api/v1/local-queues/team-nlp/default"
    assert client.put(path, json=changed, headers={"If-Match": tag}).status_code == 200
    assert client.put(path, json=changed, headers={"If-Match": tag}).status_code == 412
    assert client.put(path, json=changed, headers={"If-None-Match": "*"}).status_code == 412
    assert client.delete(path, headers={"If-Match": tag}).status_code == 412
    assert client.delete(path).status_code == 428
    assert client.delete(path, headers=ANY).status_code == 204
    assert client.get(path).status_code == 404
    assert client.put(path, json=changed).status_code == 201


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_who_changes_an_object_says_which_state_was_read(client: TestClient, method: str):
    put(client, TEXT)
    path = "/api/v1/queues/vision"
    body = client.get(path).json()
    answer = client.request(method, path, json=body)
    assert answer.status_code == 428
    assert '(now "1")' in answer.json()["detail"]
    assert client.request(method, path, json=body, headers={"If-Match": '"7"'}).status_code == 412
    assert client.request(method, path, json=body, headers={"If-Match": '"1"'}).is_success


def test_a_patch_merges_fields_and_takes_away_what_is_null(client: TestClient):
    put(client, TEXT)
    path = "/api/v1/queues/ranking"
    before = client.get(path).json()
    patch = {"spec": {"stopPolicy": None, "fairSharing": {"weight": 2.50}}}
    answer = client.patch(path, json=patch, headers=ANY, params={"reason": "opened"})
    assert answer.status_code == 200, answer.text
    expected = {**before["spec"], "fairSharing": {"weight": "2.5"}}
    del expected["stopPolicy"]
    assert answer.json()["spec"] == expected
    assert answer.headers["etag"] == '"2"'
    assert client.get("/api/v1/revisions/2").json()["reason"] == "opened"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ('{"spec": {"cohrt": "x"}}', "unknown field 'cohrt'"),
        ('{"spec": {"fairSharing": {"weight": -1}}}', "'-1' is negative"),
        ('{"spec": {"cohort": "a", "cohort": "b"}}', "is given twice"),
        ('{"metadata": {"name": "other"}}', "must be exactly one object"),
        ("[1]", "must be one object"),
        ("", "must be one object"),
        ("{", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_bad_patches(client: TestClient, body: str, word: str):
    put(client, TEXT)
    answer = client.patch("/api/v1/queues/vision", content=body, headers=ANY)
    assert answer.status_code == 422
    assert word in answer.text
    assert client.get("/api/v1/revisions").json()["items"][0]["number"] == 1


def test_nothing_to_patch(client: TestClient):
    assert client.patch("/api/v1/queues/none", json={}, headers=ANY).status_code == 404


def test_settings_and_role_bindings_are_objects_like_others(client: TestClient):
    put(client, TEXT)
    settings = document("Settings", "default", {"drainTimeout": "5m"})
    assert client.put("/api/v1/settings/default", json=settings).status_code == 201
    spec = {"role": "viewer", "subjects": [{"kind": "Group", "name": "all"}]}
    assert client.put("/api/v1/role-bindings/everybody", json=document("RoleBinding", "everybody", spec)).is_success
    assert [item["spec"] for item in client.get("/api/v1/role-bindings").json()["items"]] == [spec]


def test_a_queue_that_a_local_queue_names_stays(client: TestClient):
    put(client, TEXT)
    answer = client.delete("/api/v1/queues/nlp", headers=ANY)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["name"], error["field"], error["message"]) == (
        "team-nlp/default",
        "spec.queue",
        "queue 'nlp' is still used here",
    )


def test_the_schema_is_published(client: TestClient):
    schema = client.get("/api/v1/schema").json()
    assert set(schema["then"]["properties"]["kind"]["enum"]) >= {"Queue", "Settings", "RoleBinding"}
    assert "nominalQuota" in schema["$defs"]["ResourceQuota"]["properties"]


def test_examples_of_the_openapi_document_are_valid(client: TestClient):
    paths = client.get("/openapi.json").json()["paths"]
    bodies = [
        content["example"]
        for operations in paths.values()
        for method, operation in operations.items()
        if method == "put" and operation["tags"] == ["configuration"]
        for media, content in operation["requestBody"]["content"].items()
        if media == "application/json"
    ]
    assert len(bodies) == 9
    assert parse_objects(bodies[1:]).errors == ()


def test_the_body_must_be_the_object_of_the_url(client: TestClient):
    put(client, TEXT)
    answer = client.put("/api/v1/queues/vision", json=SMALL[3])
    assert answer.status_code == 422
    assert answer.json()["detail"] == "the body must be exactly one object, the Queue vision of the URL"


def test_names_with_slashes(client: TestClient):
    put(client, TEXT)
    body = document("Queue", "research/speech", {"cohort": "research", "namespaceSelector": {}})
    assert client.put("/api/v1/queues/research/speech", json=body).status_code == 201
    assert client.get("/api/v1/queues/research/speech").json() == body
    assert client.get("/api/v1/queues/research/speech/usage").json()["path"] == "company/research/speech"


def test_those_who_write_at_once_wait_for_each_other(client: TestClient):
    put(client, TEXT)

    def work(number: int) -> list[int]:
        body = document("Cohort", f"c{number}", {"parent": "company"})
        path = f"/api/v1/cohorts/c{number}"
        return [client.put(path, json=body).status_code, client.delete(path, headers=ANY).status_code]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [[201, 204]] * 16


def test_lists_are_paged(client: TestClient, store: Store):
    configure(store, [document("Flavor", f"f{n}", {}) for n in range(5)])
    first = client.get("/api/v1/flavors?limit=3").json()
    assert [item["metadata"]["name"] for item in first["items"]] == ["f0", "f1", "f2"]
    second = client.get("/api/v1/flavors", params={"limit": 3, "cursor": first["next"]}).json()
    assert ([item["metadata"]["name"] for item in second["items"]], second["next"]) == (["f3", "f4"], None)


def test_revisions(client: TestClient):
    put(client, TEXT, reason="first")
    put(client, export(parse_objects([queue("nlp", "research", 128)]).objects), reason="more for nlp")
    page = client.get("/api/v1/revisions?limit=1").json()
    [newest] = page["items"]
    assert (newest["number"], newest["author"], newest["reason"]) == (2, "local", "more for nlp")
    assert newest["diff"][0]["name"] == "nlp"
    assert client.get("/api/v1/revisions", params={"cursor": page["next"]}).json()["items"][0]["reason"] == "first"
    assert client.get("/api/v1/revisions?cursor=x").status_code == 400


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (b"\xff\xfe", 400, "UTF-8"),
        (b"a: b: c", 422, "not valid YAML"),
        (b"[" * 100_000, 422, "nested too deeply"),
        (b"1", 422, "must be an object"),
        (b"x" * (33 * 2**20), 413, ""),
    ],
)
def test_bad_bodies(client: TestClient, content: bytes, status: int, word: str):
    answer = client.put(CONFIG, content=content)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text


def test_a_thousand_queues(client: TestClient):
    documents = [document("Flavor", "h100", {}), document("Cohort", "research", {})]
    documents += [queue(f"q{n:04}", "research", n) for n in range(1000)]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    assert put(client, body)["revision"] == 1
    assert len(client.get("/api/v1/tree").json()["items"][0]["children"]) == 1000
