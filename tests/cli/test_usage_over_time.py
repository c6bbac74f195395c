"""`usage` of a span of time on the terminal, and filters of the other lists."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml
from typer.testing import CliRunner, Result

from queue_manager.cli.main import app
from queue_manager.config import human
from queue_manager.store.store import Store
from tests.api.test_usage_over_time import EARLY, LASTING, MOVED, RESIZED, RESTARTED, Story, tell
from tests.api.world import GPU


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def november(server: str, store: Store) -> str:
    """A server that knows the story of November 2026; its present is the 29th."""
    tell(Story(store))
    return server


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_hours_of_gpus_of_a_month_by_team_in_one_line(november: str):
    result = run("usage", "--by", "cohort", "--from", "this-month", "--resource", "gpu", "--server", november)
    assert result.exit_code == 0, result.output
    heading, research, company, *rest = result.stdout.splitlines()
    assert cells(heading) == ["COHORT", "RESOURCE", "HOURS", "AVERAGE", "QUOTA HOURS", "OF QUOTA"]
    used = EARLY + RESIZED + MOVED + RESTARTED + LASTING
    assert cells(research)[:3] == ["research", "gpu", human.hours(GPU, used)]
    assert cells(company)[:3] == ["company", "gpu", "192.0"]
    assert cells(rest[-1])[:3] == ["(all)", "gpu", human.hours(GPU, used + MOVED)]


def test_days_of_a_cohort_by_user(november: str):
    query = ("usage", "research", "--from", "2026-11-14", "--to", "2026-11-16", "--step", "1d", "--by", "user")
    result = run(*query, "--server", november)
    heading, *lines = result.stdout.splitlines()
    assert cells(heading) == ["FROM", "USER", "RESOURCE", "HOURS", "AVERAGE"]
    assert [cells(line) for line in lines] == [["2026-11-15", "eve", "gpu", "192.0", "8"]]
    as_json = json.loads(run(*query, "-o", "json", "--fields", "user,usedSeconds", "--server", november).stdout)
    assert as_json["items"] == [{"user": "eve", "usedSeconds": MOVED}]
    assert yaml.safe_load(run(*query, "-o", "yaml", "--server", november).stdout)["items"][0]["average"] == 8.0
    assert run(*query, "-o", "name", "--server", november).stdout == f"eve/{GPU}\n"


def test_nothing_used_is_said(november: str):
    result = run("usage", "--user", "nobody", "--from", "3d", "--server", november)
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert "nothing was used from 2026-11-26" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("usage", "--by", "usr"), 1, "did you mean 'user'"),
        (("usage", "--from", "tomorrow"), 1, "last-month"),
        (("usage", "nlpp", "--from", "7d"), 1, "did you mean 'nlp'"),
        (("usage", "--from", "7d", "--fields", "user"), 2, "-o json"),
        (("revisions", "--kind", "queue"), 1, "did you mean 'Queue'"),
        (("revisions", "--object", "nlp"), 1, "KIND/NAME"),
        (("audit", "--fields", "whoo", "-o", "json"), 1, "did you mean 'who'"),
    ],
)
def test_what_is_asked_wrongly_says_what_would_be_right(
    november: str, arguments: tuple[str, ...], code: int, message: str
):
    result = run(*arguments, "--server", november)
    assert result.exit_code == code
    assert message in f"{result.stderr} {result.exception} {getattr(result.exception, 'hint', '')}"


def test_revisions_are_filtered_on_the_terminal(november: str):
    result = run("revisions", "--object", "Queue/nlp", "--from", "2026-11-11", "--server", november, "-o", "name")
    assert result.stdout.split() == ["4", "3"]
    first = run("revisions", "--sort", "number", "--limit", "2", "--server", november, "-o", "name")
    assert first.stdout.split() == ["1", "2"]
    fields = run(
        "revisions", "--author", "ada", "--to", "2026-11-01", "-o", "json", "--fields", "number", "--server", november
    )
    assert json.loads(fields.stdout) == {"items": [{"number": 1}]}


def test_the_audit_log_and_tokens_give_the_fields_that_are_asked_for(november: str):
    lines = json.loads(
        run("audit", "--from", "2026-11-26", "-o", "json", "--fields", "action", "--server", november).stdout
    )
    assert {"action": "configuration.delete"} in lines
    assert run("tokens", "create", "one", "--role", "viewer", "--server", november).exit_code == 0
    found = run("tokens", "list", "-o", "json", "--fields", "name,scopes.role", "--server", november).stdout
    assert json.loads(found) == [{"name": "one", "scopes": [{"role": "viewer"}]}]


@pytest.mark.parametrize(
    ("resource", "amount", "lasts", "said"),
    [
        (GPU, 1, timedelta(minutes=30), "0.5"),
        (GPU, 8, timedelta(days=30), "5\u202f760.0"),
        ("cpu", 64_000, timedelta(hours=2), "128.0"),
        ("memory", 2**40, timedelta(hours=2), "2Ti"),
    ],
)
def test_hours_for_people(resource: str, amount: int, lasts: timedelta, said: str):
    assert human.hours(resource, amount * int(lasts.total_seconds())) == said
