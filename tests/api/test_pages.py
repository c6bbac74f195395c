"""The web page: it says what an admin looks for, and hostile names do nothing."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from api.dashboard.view import bar
from api.usage.schemas import CellUsage
from queue_manager.store.records import Change
from queue_manager.store.store import Store
from tests.api.world import GPU, commit, configure, job, small_company, waiting

HOSTILE = "<script>alert(1)</script>\"' onmouseover=alert(2) {{7*7}} \u202e javascript:alert(3)"


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


class Page(HTMLParser):
    """Text, tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(client: TestClient, path: str, status: int = 200) -> Page:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


def test_overview_shows_tree_and_workloads(company: TestClient):
    text = read(company, "/").text
    for part in (
        "company",
        "research",
        "nlp",
        "80 /64",
        "stopped",
        "12 GPUs short in nlp",
        "2 × 8 gpu",
        "suspended by its user",
    ):
        assert part in text


def test_what_has_ended_is_shown_when_asked_for(company: TestClient):
    link = "/workloads/team-vision/done"
    assert link not in company.get("/").text
    assert link in company.get("/?state=all").text
    assert link in company.get("/?state=finished").text


def test_fragment_is_the_live_part_alone(company: TestClient):
    answer = company.get("/fragments/overview?queue=nlp")
    assert "<html" not in answer.text
    assert "team-nlp/" in answer.text
    assert "team-vision/" not in answer.text


def test_filters_and_their_links(company: TestClient):
    page = read(company, "/?cohort=research&state=waiting")
    assert "blocked" in page.text
    assert "state: waiting" in page.text
    links = [values["href"] for tag, values in page.tags if tag == "a"]
    assert "/?state=waiting&queue=nlp" in links


def test_page_of_a_waiting_workload(company: TestClient):
    page = read(company, "/workloads/team-nlp/blocked?kind=TrainJob")
    for part in ("12 GPUs short in nlp", "position 1", "Not enough free quota", "missing 12", "held by team-nlp/big"):
        assert part in page.text
    assert "/workloads/team-nlp/big" in [values.get("href") for _, values in page.tags]


def test_page_of_a_running_workload_shows_places(company: TestClient):
    assert "4 in block-1 / rack-1" in read(company, "/workloads/team-nlp/big").text


def test_unknown_things_get_a_page_that_says_so(company: TestClient):
    assert "there is no workload" in read(company, "/workloads/team-nlp/nothing", 404).text
    assert "there is no cohort" in read(company, "/?cohort=nothing", 404).text


def test_empty_installation_tells_what_to_do(client: TestClient):
    assert "queue-manager apply -f FILE" in read(client, "/").text


@pytest.mark.parametrize(
    "path", ["/", "/fragments/overview", "/workloads/team-nlp/hostile", "/?text=%3Cscript%3E&user=%22%3E%3Cb"]
)
def test_hostile_values_are_text(store: Store, client: TestClient, path: str):
    configure(store)
    row = replace(job("hostile", "nlp", 1), user=HOSTILE, priority_class=HOSTILE, local_queue=HOSTILE)
    commit(store, waiting(row, HOSTILE, holders=[HOSTILE, f"{HOSTILE}/x"]))
    page = read(client, path)
    scripts = [values for tag, values in page.tags if tag == "script"]
    assert scripts in ([], [{"src": "/static/page.js", "defer": None}])
    for tag, values in page.tags:
        assert tag != "b" or not values
        assert not [name for name in values if name.startswith("on") or name == "style"], (tag, values)
        for name in ("href", "src", "action"):
            assert (values.get(name) or "/").startswith(("/", "?")), (tag, values)
    if "?" not in path:
        assert "<script>alert(1)</script>" in page.text


def test_nothing_comes_from_elsewhere(company: TestClient):
    for path in ("/", "/static/page.css", "/static/page.js", "/static/icon.svg"):
        text = company.get(path).text
        assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https:" not in text


def cell(**amounts: int) -> CellUsage:
    names = ("nominal", "own", "used", "borrowed", "lent", "draining", "waiting")
    return CellUsage(flavor="f", resource=GPU, **{name: amounts.get(name, 0) for name in names})


@pytest.mark.parametrize(
    ("amounts", "parts", "tick"),
    [
        ({"nominal": 10, "used": 4}, [("own", 0, 400)], None),
        ({"nominal": 10, "used": 4, "draining": 1}, [("own", 0, 300), ("draining", 300, 100)], None),
        ({"nominal": 10, "used": 4, "lent": 5}, [("own", 0, 400), ("lent", 500, 500)], None),
        ({"nominal": 10, "used": 20, "borrowed": 10}, [("own", 0, 500), ("borrowed", 500, 500)], 500),
        ({"nominal": 0, "used": 8}, [("borrowed", 0, 1000)], None),
        ({"nominal": 0, "used": 0}, [], None),
        ({"nominal": 100000, "used": 1}, [("own", 0, 8)], None),
    ],
)
def test_bars(amounts: dict[str, int], parts: list[tuple[str, int, int]], tick: int | None):
    drawn = bar(cell(**amounts))
    assert [(part.kind, part.start, part.width) for part in drawn.parts] == parts
    assert drawn.tick == tick


def test_words_of_a_bar():
    drawn = bar(cell(nominal=10, used=14, borrowed=4, draining=2, waiting=3))
    assert drawn.label == "f gpu: 14 of 10 used, 4 borrowed, 2 draining, 3 waiting"


def test_a_workload_that_is_not_evaluated_yet(store: Store, client: TestClient):
    configure(store)
    commit(store, Change(row=replace(job("new", "nlp", 1), reason="PendingEvaluation")))
    text = read(client, "/workloads/team-nlp/new").text
    assert "not looked at yet" in text
    assert "Nothing has been found yet" in text
