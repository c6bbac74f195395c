"""What holds for every route: problem documents, security headers, loopback, health."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import create_engine
from starlette.testclient import TestClient

from api.app import create_app
from api.security import require_loopback
from queue_manager.store.store import Store


def test_health_and_readiness(client: TestClient):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


@pytest.fixture
def without_database() -> Iterator[TestClient]:
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    yield TestClient(create_app(Store(engine)), base_url="http://localhost", raise_server_exceptions=False)
    engine.dispose()


def test_without_a_database_it_lives_but_is_not_ready(without_database: TestClient):
    assert without_database.get("/healthz").status_code == 200
    assert without_database.get("/readyz").status_code == 503
    answer = without_database.get("/api/v1/tree")
    assert (answer.status_code, answer.json()["title"]) == (503, "Database unavailable")


def test_not_ready_says_why(store: Store):
    app = create_app(store, not_ready=lambda: "catching up with the cluster")
    answer = TestClient(app, base_url="http://localhost").get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "catching up with the cluster")


def test_metrics_are_those_of_the_registry(store: Store):
    registry = CollectorRegistry()
    Gauge("queue_manager_leader", "leader", registry=registry).set(1)
    answer = TestClient(create_app(store, registry=registry), base_url="http://localhost").get("/metrics")
    assert "queue_manager_leader 1.0" in answer.text


def test_openapi_document_lists_the_routes(client: TestClient):
    paths = client.get("/openapi.json").json()["paths"]
    assert "/api/v1/workloads/{namespace}/{name}/explanation" in paths
    assert set(paths["/api/v1/queues/{name}"]) == {"get", "put", "patch", "delete"}
    assert set(paths["/api/v1/config"]) == {"get", "put"}


def test_openapi_document_tells_how_errors_look(client: TestClient):
    document = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            errors = {status: answer for status, answer in operation["responses"].items() if status[0] in "45"}
            assert errors
            for status, answer in errors.items():
                assert "application/problem+json" in answer["content"], (operation["operationId"], status)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("DELETE", "/api/v1/tree"), ("GET", "/static/nothing")]
)
def test_every_error_is_a_problem_document(client: TestClient, method: str, path: str):
    answer = client.request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code


@pytest.mark.parametrize("path", ["/", "/api/v1/tree", "/static/page.css", "/nothing"])
def test_security_headers_are_everywhere(client: TestClient, path: str):
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "10.0.0.1", "", "localhost.evil.example", "127.0.0.1@x"]
)
def test_foreign_host_names_are_refused(client: TestClient, host: str):
    answer = client.get("/api/v1/tree", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:9", "[::1]:8080", "qm.localhost"])
def test_names_of_this_machine_are_served(client: TestClient, host: str):
    assert client.get("/api/v1/tree", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 422), ("none", 422)]
)
def test_pages_of_other_sites_may_not_write(client: TestClient, site: str, status: int):
    assert client.put("/api/v1/config", content="x", headers={"Sec-Fetch-Site": site}).status_code == status


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", ""])
def test_only_loopback_may_be_listened_on(host: str):
    with pytest.raises(ValueError, match="without authentication"):
        require_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_may_be_listened_on(host: str):
    require_loopback(host)
