"""plan, diff, revisions, rollback, apply --if-plan and schema as typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app
from queue_manager.config.export import export
from queue_manager.config.json_schema import configuration_schema
from queue_manager.config.parse import parse_objects
from queue_manager.store.store import Store
from tests.api.world import document, queue

Run = Callable[..., Result]


@pytest.fixture
def run(company: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the small company."""
    monkeypatch.setenv("QM_SERVER", company)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def less(tmp_path: Path) -> str:
    """A file that cuts nlp to 8 GPUs and adds a cohort."""
    path = tmp_path / "less quota.yaml"
    path.write_text(export(parse_objects([queue("nlp", "research", 8), document("Cohort", "new", {})]).objects))
    return str(path)


FIELD = "spec.resourceGroups[0].flavors[h100].resources[nvidia.com/gpu].nominalQuota"


def test_a_difference_field_by_field(run: Run, less: str):
    lines = run("diff", "-f", less).stdout.splitlines()
    assert lines[:2] == ["+ Cohort new", "~ Queue nlp"]
    assert f"    {FIELD}: 64 -> 8" in lines


def test_plan_then_apply_exactly_that(run: Run, less: str, store: Store):
    text = run("plan", "-f", less).stdout
    # vision lends what nlp borrows, and its job `big` was over the quota of nlp before.
    assert "~ Queue nlp" in text
    [command] = re.findall(r"apply exactly this: queue-manager (.*)", text)
    assert command.startswith(f"apply -f '{less}' --if-plan ")
    wrong = run("apply", "-f", less, "--if-plan", "0" * 32)
    assert isinstance(wrong.exception, CommandError)
    assert "what it does to the live state has changed" in str(wrong.exception)
    assert store.load_configuration()[0] == 1
    applied = run("apply", "-f", less, "--if-plan", command.split()[-1], "--reason", "cut")
    assert applied.stdout.endswith("revision 2\n"), applied.exception
    assert store.revisions()[0].reason == "cut"


def test_who_is_touched_is_named(run: Run, tmp_path: Path):
    file = tmp_path / "open.yaml"
    file.write_text(export(parse_objects([queue("vision", "research", 32, stopPolicy="HoldAndDrain")]).objects))
    text = run("plan", "-f", str(file)).stdout
    assert "running ones that would be evicted at once: 1\n    team-vision/small\n" in text
    assert json.loads(run("plan", "-f", str(file), "-o", "json").stdout)["wouldStop"] == ["team-vision/small"]


def test_revisions_and_rollback(run: Run, less: str, store: Store):
    run("apply", "-f", less, "--reason", "less for nlp")
    lines = run("revisions").stdout.splitlines()
    assert lines[0].split() == ["REVISION", "TIME", "AUTHOR", "CHANGES", "REASON"]
    assert "1 created, 1 changed  less for nlp" in lines[1]
    one = run("revisions", "2").stdout
    assert one.startswith("revision 2, 2026-")
    assert f"    {FIELD}: 64 -> 8\n" in one
    assert "- Cohort new" in run("plan", "--rollback", "1").stdout
    assert run("diff", "--rollback", "1").stdout.startswith("- Cohort new\n")
    assert run("rollback", "1").stdout == "Cohort new deleted\nQueue nlp changed\nrevision 3\n"
    assert run("rollback", "1").stdout == "nothing to change at revision 3\n"
    missing = run("rollback", "9")
    assert "there is no revision '9'" in str(missing.exception)


def test_errors_of_a_plan_have_the_file_and_its_line(run: Run, tmp_path: Path, less: str):
    bad = tmp_path / "bad.yaml"
    bad.write_text("apiVersion: queue-manager.io/v1\nkind: Queue\nmetadata: {name: a}\nspec: {cohrt: x}\n")
    for command in ("plan", "diff"):
        error = run(command, "-f", less, "-f", str(bad)).exception
        [finding] = error.errors  # type: ignore[union-attr]
        assert (finding["file"], finding["line"]) == (str(bad), 4)


@pytest.mark.parametrize("arguments", [("plan",), ("diff",), ("plan", "-f", "x", "--rollback", "1"), ("rollback",)])
def test_bad_use(run: Run, arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


def test_the_schema_needs_no_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QM_SERVER", "http://127.0.0.1:9")
    assert json.loads(CliRunner().invoke(app, ["schema"]).stdout) == configuration_schema()
    assert yaml.safe_load(CliRunner().invoke(app, ["schema", "-o", "yaml"]).stdout) == configuration_schema()
