"""`stop`, `drain` and `stops`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app
from queue_manager.store.store import Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "says", "stopped"),
    [
        (("stop", "nlp", "--policy", "Hold"), "Queue nlp: Hold", ("Queue", "nlp", "Hold")),
        (
            ("stop", "research", "--policy", "HoldAndDrain", "--kind", "cohort"),
            "Cohort research: HoldAndDrain",
            ("Cohort", "research", "HoldAndDrain"),
        ),
        (
            ("stop", "team-nlp/default", "--policy", "Hold", "--kind", "local-queue"),
            "LocalQueue team-nlp/default: Hold",
            ("LocalQueue", "default", "Hold"),
        ),
        (("drain", "queue", "nlp"), "Queue nlp: HoldAndDrain", ("Queue", "nlp", "HoldAndDrain")),
        (("drain", "flavor", "h100"), "Flavor h100: HoldAndDrain", ("Flavor", "h100", "HoldAndDrain")),
        (("drain", "flavor", "h100", "--let-finish"), "Flavor h100: Hold", ("Flavor", "h100", "Hold")),
    ],
)
def test_they_stop_what_is_named(company: str, arguments: tuple[str, ...], says: str, stopped: tuple[str, ...]):
    done = run(*arguments, "--reason", "power cut", "--server", company)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{says}\n"
    listed = json.loads(run("stops", "-o", "json", "--server", company).stdout)
    assert [(each["kind"], each["name"], each["policy"], each["reason"]) for each in listed] == [
        (*stopped, "power cut")
    ]
    assert "power cut" in run("stops", "--server", company).stdout


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (("drain", "flavor", "h100"), ("drain", "flavor", "h100", "--undo")),
        (("drain", "queue", "nlp"), ("stop", "nlp", "--policy", "None")),
    ],
)
def test_they_end_it(company: str, store: Store, begin: tuple[str, ...], end: tuple[str, ...]):
    assert run(*begin, "--reason", "x", "--server", company).exit_code == 0
    done = run(*end, "--reason", "y", "--server", company)
    assert (done.exit_code, done.stdout.endswith(": None\n")) == (0, True)
    assert json.loads(run("stops", "-o", "json", "--server", company).stdout) == []
    assert [revision.reason for revision in store.revisions()][:2] == ["y", "x"]


def test_a_stop_is_planned_without_a_reason_and_not_set(company: str, store: Store):
    revision = store.current_revision()
    planned = run("drain", "queue", "nlp", "--plan", "--server", company)
    assert (planned.exit_code, planned.stdout.splitlines()) == (
        0,
        [
            "+ Stop Queue/nlp",
            *("", "running ones that would be evicted at once: 1", "    team-nlp/big"),
            *("", "waiting ones that could never start: 2", "    team-nlp/blocked", "    team-nlp/later"),
        ],
    )
    local = run("stop", "team-nlp/default", "--kind", "local-queue", "--policy", "Hold", "--plan", "--server", company)
    assert (local.exit_code, local.stdout.splitlines()[0]) == (0, "+ Stop team-nlp/LocalQueue/default")
    nothing = run("drain", "flavor", "h100", "--undo", "--plan", "--server", company)
    assert nothing.stdout == f"nothing to change at revision {revision}\n"
    assert store.current_revision() == revision


def test_what_its_configuration_stops_is_said(company: str):
    done = run("stop", "ranking", "--policy", "None", "--reason", "x", "--server", company)
    assert done.stdout == "Queue ranking: Hold\n"
    assert done.stderr == "it is stopped (Hold) by its configuration\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("stop", "nlp", "--policy", "Hold"),
        ("stop", "nlp", "--reason", "x"),
        ("stop", "nlp", "--policy", "hold", "--reason", "x"),
        ("drain", "flavor", "h100"),
        ("drain", "cohort", "x", "--reason", "x"),
        ("drain", "queue", "nlp", "--reason", "x", "--undo", "--let-finish"),
    ],
)
def test_bad_use_is_told(company: str, arguments: tuple[str, ...]):
    assert run(*arguments, "--server", company).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("stop", "", "--policy", "Hold", "--reason", "x"),
        ("stop", "nlp/..", "--policy", "Hold", "--reason", "x"),
        ("drain", "queue", "", "--reason", "x"),
        ("drain", "flavor", "..", "--reason", "x"),
    ],
)
def test_what_can_be_no_name_is_told_and_nothing_is_asked_for(company: str, arguments: tuple[str, ...]):
    done = run(*arguments, "--server", company)
    assert done.exit_code == 1
    assert isinstance(done.exception, CommandError)
    assert "is no name" in done.exception.message
    assert "name of what is meant" in done.exception.hint
