"""Profiles: the file and who may read it; which server is asked, and which token goes to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from queue_manager.cli import profiles
from queue_manager.cli.commanding import Job, job_of
from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app
from queue_manager.cli.profiles import Profile
from queue_manager.cli.target import Plugin, Target, chosen, connect

Run = Callable[..., Result]
A, B = "https://a.example", "https://b.example"


@pytest.fixture
def run() -> Run:
    """Runs a command."""
    return lambda *arguments, stdin="": CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def two(run: Run) -> None:
    """Profiles a (the current one) and b."""
    run("profile", "set", "a", "--server", A, "--token", "qm_a", "-n", "team-a")
    run("profile", "set", "b", "--server", B, "--token", "-", stdin="qm_b\n")


def test_the_file_is_its_owners_alone(two: None):
    assert profiles.path().stat().st_mode & 0o777 == 0o600
    assert json.loads(profiles.path().read_text())["profiles"]["b"] == {"server": B, "token": "qm_b"}
    profiles.path().chmod(0o640)
    with pytest.raises(CommandError) as error:
        profiles.load()
    assert "chmod 600" in error.value.hint


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("target", "environment", "server", "token"),
    [
        (Target(), {}, A, "qm_a"),
        (Target(profile="b"), {}, B, "qm_b"),
        (Target(profile="b"), {"QM_SERVER": A, "QM_TOKEN": "qm_env"}, B, "qm_b"),
        (Target(profile="b", token="qm_x"), {}, B, "qm_x"),
        (Target(), {"QM_PROFILE": "b"}, B, "qm_b"),
        (Target(), {"QM_SERVER": "http://c", "QM_PROFILE": "b"}, "http://c", ""),
        (Target(server="http://c"), {}, "http://c", ""),
        (Target(server="http://c"), {"QM_TOKEN": "qm_env"}, "http://c", "qm_env"),
        (Target(server=B + "/"), {}, B + "/", "qm_b"),
        (Target(server="http://c", profile="b"), {}, "http://c", ""),
    ],
)
def test_what_is_typed_counts_first_and_a_token_goes_to_its_own_server_only(
    target: Target, environment: dict[str, str], server: str, token: str
):
    found = chosen(target, environment)
    assert (found.server, found.token) == (server, token)


def test_without_any_profile_it_is_this_machine():
    assert chosen(Target(), {}) == Profile("http://127.0.0.1:8080")


def test_a_context_is_a_server_in_its_cluster(two: None):
    assert chosen(Target(context="prod"), {}) == Profile(context="prod")


def test_as_kubectls_plugin_the_cluster_comes_before_the_current_profile(two: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Plugin, "active", True)
    assert chosen(Target(), {}) == Profile()
    assert chosen(Target(), {"QM_PROFILE": "b"}).server == B


def test_list_use_and_remove(two: None, run: Run):
    lines = run("profile", "list").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["PROFILE", "SERVER", "NAMESPACE", "TOKEN"],
        ["*", "a", A, "team-a", "yes"],
        ["b", B, "yes"],
    ]
    assert "qm_a" not in run("profile", "list", "-o", "json").stdout
    run("profile", "use", "b")
    assert profiles.load().current == "b"
    run("profile", "remove", "b")
    assert run("profile", "list", "-o", "name").stdout == "a\n"
    assert profiles.load().current == ""


def test_set_changes_only_what_is_given(two: None, run: Run):
    run("profile", "set", "a", "--namespace", "other")
    assert profiles.load().get("a") == Profile(A, token="qm_a", namespace="other")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("use", "c"), "there is no profile 'c'"),
        (("set", "a b", "--server", A), "is no name for a profile"),
        (("set", "c", "--server", "ftp://x"), "is not the URL of a server"),
        (("set", "c", "--server", A, "--ca-file", "/does/not/exist"), "can't read the certificates"),
        (("set", "c", "--server", A, "--token", "a\tb"), "characters that no token has"),
    ],
)
def test_what_can_be_no_profile(two: None, run: Run, arguments: tuple[str, ...], message: str):
    result = run("profile", *arguments)
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert list(profiles.load().named) == ["a", "b"]


def test_neither_a_server_nor_a_context_is_bad_use(run: Run):
    assert run("profile", "set", "c").exit_code == 2
    assert run("profile", "set", "c", "--server", A, "--context", "x").exit_code == 2


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"profiles": {"a": {"sever": "x"}}}',
        '{"profiles": {"a": {"server": 1}}}',
        '{"profiles": {}, "current": "a"}',
    ],
)
def test_a_file_that_somebody_has_broken(content: str):
    profiles.path().parent.mkdir(parents=True, exist_ok=True)
    profiles.path().write_text(content)
    profiles.path().chmod(0o600)
    with pytest.raises(CommandError, match="is not as it should be"):
        profiles.load()


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert profiles.path() == Path.home() / ".config" / "queue-manager" / "profiles.json"


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("typed", "namespace", "expected"),
    [("x/y", "", Job("x", "y")), ("y", "x", Job("x", "y")), ("y", "", Job("team-a", "y")), ("x/y", "x", Job("x", "y"))],
)
def test_a_job_is_named_with_its_namespace_or_with_a_default(typed: str, namespace: str, expected: Job):
    assert job_of(typed, namespace, "", Target()) == expected


@pytest.mark.parametrize(
    ("typed", "namespace"), [("x/y", "z"), ("y", ""), ("", "x"), ("/y", ""), ("x/", ""), ("a/b/c", ""), ("../y", "")]
)
def test_what_names_no_job(typed: str, namespace: str):
    with pytest.raises(CommandError):
        job_of(typed, namespace, "", Target(server=A))


def test_the_server_of_a_profile_is_asked(run: Run, company: str):
    run("profile", "set", "here", "--server", company, "-n", "team-nlp")
    assert run("explain", "blocked").stdout.startswith("TrainJob team-nlp/blocked: waiting")
    assert connect(Target(profile="here")).connection.server == company
