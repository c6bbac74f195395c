"""--watch: what is new or has changed, by the server's events or by looking again."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from queue_manager.cli import watch
from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app
from queue_manager.cli.output import Format, Table
from queue_manager.cli.views import workloads
from queue_manager.cli.watch import CLEAR, News, View, follow
from queue_manager.store.records import Change
from queue_manager.store.store import Store
from tests.api.world import commit, job


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "SHORTEST"):
        monkeypatch.setattr(watch, name, 0.0)


def client(handler: Callable[[httpx2.Request], httpx2.Response]) -> Client:
    return Client("http://queues.example", transport=httpx2.MockTransport(handler))


def without_events(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(404, json={"title": "Not found"})


def view(*looks: list[tuple[str, int]] | CommandError) -> View:
    following = iter(looks)

    def read() -> Any:
        found = next(following)
        if isinstance(found, CommandError):
            raise found
        return {"items": [{"name": name, "n": n} for name, n in found]}

    def table(data: Any) -> Table:
        return Table(("NAME", "N"), [[item["name"], item["n"]] for item in data["items"]])

    return View(read, table, name=lambda item: item["name"])


LOOKS = ([("a", 1), ("b", 1)], [("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("c", 1)])


def test_lines_that_are_new_or_have_changed(capsys: pytest.CaptureFixture[str]):
    follow(client(without_events), view(*LOOKS), Format.TABLE, looks=3)
    assert capsys.readouterr().out.splitlines() == ["NAME  N", "a     1", "b     1", "b     2", "c     1"]


def test_json_is_one_line_a_thing(capsys: pytest.CaptureFixture[str]):
    follow(client(without_events), view(*LOOKS), Format.JSON, looks=3)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["name"], line["n"]) for line in lines] == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


def test_names_are_told_once(capsys: pytest.CaptureFixture[str]):
    follow(client(without_events), view(*LOOKS), Format.NAME, looks=3)
    assert capsys.readouterr().out.split() == ["a", "b", "c"]


def test_a_terminal_is_drawn_anew_and_nothing_runs_out_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    many = [(f"job-with-a-long-name-{n}", n) for n in range(9)]
    follow(client(without_events), view(LOOKS[0], many), Format.TABLE, looks=2)
    first, second = capsys.readouterr().out.split(CLEAR)[1:]
    assert first.splitlines() == ["NAME  N", "a     1", "b     1"]
    assert len(second.splitlines()) == 4
    assert second.splitlines()[-1] == "... and 7 more lines"
    assert max(map(len, second.splitlines())) <= 20


def test_a_server_that_is_away_for_a_moment_is_told_and_asked_again(capsys: pytest.CaptureFixture[str]):
    follow(client(without_events), view(LOOKS[0], CommandError("away"), LOOKS[1]), Format.TABLE, looks=3)
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "b     2"
    assert err == "away; trying again\n"


def test_what_fails_from_the_start_fails():
    with pytest.raises(CommandError, match="away"):
        follow(client(without_events), view(CommandError("away")), Format.TABLE, looks=3)


def test_an_event_is_a_reason_to_look(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "LONGEST", 3600.0)
    go_on = threading.Event()

    class Told(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b": hello\n\n"
            go_on.wait(20)
            yield b"data: {}\n\n"
            threading.Event().wait(20)

    headers = {"content-type": "text/event-stream"}
    news = News(client(lambda _: httpx2.Response(200, headers=headers, stream=Told())))
    assert news._told.wait(60)
    waiting = threading.Thread(target=news.wait)
    waiting.start()
    go_on.set()
    waiting.join(60)
    assert not waiting.is_alive()


def test_what_changes_in_the_store_is_shown_as_soon_as_the_server_tells_of_it(
    company: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The real stream of a real server; time alone is no reason to look here."""
    monkeypatch.setattr(watch, "POLL", 3600.0)
    monkeypatch.setattr(watch, "LONGEST", 3600.0)

    class Opened(News):
        def __init__(self, client: Client) -> None:
            super().__init__(client)
            assert self._told.wait(60)

    monkeypatch.setattr(watch, "News", Opened)
    server = Client(company)
    seen = workloads(server, {"queue": "nlp", "cohort": ""}, 0)
    changes = [Change(row=job("fresh", "nlp", 1))]

    def read() -> Any:
        found = seen.read()
        if changes:  # after the first look, and before anybody waits for the next one
            commit(store, changes.pop())
        return found

    arguments = (server, replace(seen, read=read), Format.NAME, 2)
    watching = threading.Thread(target=follow, args=arguments, daemon=True)
    watching.start()
    watching.join(60)
    assert not watching.is_alive()
    assert capsys.readouterr().out.split()[-1] == "team-nlp/fresh"
    assert changes == []


LISTS = ("queues", "workloads", "usage", "stops", "revisions", "audit", "tokens list", "history team-nlp/big")


@pytest.mark.parametrize("command", [*LISTS, "explain team-nlp/big"])
def test_every_list_is_watched(company: str, command: str, monkeypatch: pytest.MonkeyPatch):
    """One look prints what the command prints."""
    for change in (
        "stop nlp --policy Hold --reason x",
        "tokens create ci --role viewer",
        "move team-nlp/big nlp --reason x",
    ):
        CliRunner().invoke(app, [*change.split(), "--server", company])
    monkeypatch.setattr(watch, "follow", partial(follow, looks=1))
    typed = [*command.split(), "--server", company]
    once = CliRunner().invoke(app, typed)
    watched = CliRunner().invoke(app, [*typed, "--watch"])
    assert (once.exit_code, watched.exit_code) == (0, 0), watched.output
    assert once.stdout
    assert watched.stdout.splitlines() == list(dict.fromkeys(once.stdout.splitlines()))


def test_one_revision_is_not_watched(company: str):
    assert CliRunner().invoke(app, ["revisions", "1", "--watch", "--server", company]).exit_code == 2
