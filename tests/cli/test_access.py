"""`tokens`, `audit`, and the first admin's token."""

from __future__ import annotations

import csv
import io
import json
import stat
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from api.auth.oidc import OidcVerifier
from queue_manager.cli import profiles
from queue_manager.cli.authentication import authentication_of, first_token, is_required
from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app
from queue_manager.cli.options import AuthMode, AuthOptions
from queue_manager.cli.target import Target, chosen
from queue_manager.store.store import Store

URL = "http://127.0.0.1:8080"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_token_is_made_used_listed_and_revoked(company: str):
    made = run("tokens", "create", "ci", "--role", "viewer=research", "--expires", "1d", "--server", company)
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert secret.startswith("qm_")
    listed = run("tokens", "list", "-o", "json", "--server", company)
    assert [(each["name"], each["scopes"]) for each in json.loads(listed.stdout)] == [
        ("ci", [{"role": "viewer", "node": "research"}])
    ]
    denied = run("hold", "team-nlp/big", "--reason", "x", "--server", company, "--token", secret)
    assert denied.exit_code == 1
    assert "needs the role operator" in str(denied.exception)
    assert run("tokens", "revoke", "ci", "--server", company).exit_code == 0
    again = run("tokens", "revoke", "ci", "--server", company)
    assert "there is no token 'ci'" in str(again.exception)
    assert "not accepted" in str(run("queues", "--server", company, "--token", secret).exception)


def test_what_is_kept_of_a_revoked_token_is_printed_in_every_form(company: str):
    for name in ("a", "b"):
        assert run("tokens", "create", name, "--role", "viewer", "--server", company).exit_code == 0
    told = json.loads(run("tokens", "revoke", "a", "--reason", "lost", "-o", "json", "--server", company).stdout)
    assert (told["name"], told["revokedBy"], told["revoked"] is None) == ("a", "local", False)
    assert run("tokens", "revoke", "b", "-o", "name", "--server", company).stdout == "b\n"


def test_the_audit_log_is_shown_and_exported(company: str):
    assert run("hold", "team-nlp/big", "--reason", "on fire", "--server", company).exit_code == 0
    shown = run("audit", "--object", "workload/team-nlp/", "--server", company)
    assert "on fire" in shown.stdout
    assert "loopback 127.0.0.1" in shown.stdout
    exported = run("audit", "--export", "csv", "--action", "hold", "--server", company)
    [row] = csv.DictReader(io.StringIO(exported.stdout))
    assert (row["who"], row["object"], row["address"]) == ("local", "workload/team-nlp/big", "127.0.0.1")


def test_the_first_token_is_printed_once_and_kept_for_commands(store: Store, capsys: pytest.CaptureFixture[str]):
    first_token(store, URL, required=False)
    printed = capsys.readouterr().out
    secret = next(word for word in printed.split() if word.startswith("qm_"))
    kept = profiles.load()
    assert kept.named["local"].token == secret
    assert stat.S_IMODE(profiles.path().stat().st_mode) == 0o600
    assert kept.current == ""
    assert chosen(Target(server=URL), {}).token == secret
    assert store.access.find_token(secret) is not None
    first_token(store, URL, required=True)
    assert capsys.readouterr().out == ""


def test_where_a_proof_is_needed_commands_use_the_profile_unasked(store: Store):
    first_token(store, URL, required=True)
    assert profiles.load().current == "local"


def test_a_token_of_another_database_is_not_sent_any_more(store: Store):
    stale = profiles.Profile(server=URL, token="qm_of_another_database")
    profiles.save(profiles.Profiles("local", {"local": stale}))
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tokens (name, hash, created_at) VALUES ('admin', sha256('x'::bytea), now())"
        )
    first_token(store, URL, required=False)
    assert profiles.load().named["local"].token == ""


@pytest.mark.parametrize(
    ("options", "host", "required"),
    [
        (AuthOptions(), "127.0.0.1", False),
        (AuthOptions(), "localhost", False),
        (AuthOptions(), "0.0.0.0", True),
        (AuthOptions(hosts=("queues.example",)), "127.0.0.1", True),
        (AuthOptions(AuthMode.REQUIRED), "127.0.0.1", True),
        (AuthOptions(AuthMode.OPTIONAL), "127.0.0.1", False),
    ],
)
def test_when_a_proof_is_needed(options: AuthOptions, host: str, required: bool):
    assert is_required(options, host) == required


@pytest.mark.parametrize(
    ("options", "host", "why"),
    [
        (AuthOptions(AuthMode.OPTIONAL), "0.0.0.0", "without authentication"),
        (AuthOptions(AuthMode.OPTIONAL, hosts=("queues.example",)), "127.0.0.1", "needs authentication"),
    ],
)
def test_without_authentication_nobody_else_is_let_in(options: AuthOptions, host: str, why: str):
    with pytest.raises(CommandError, match=why):
        is_required(options, host)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (AuthOptions(oidc_issuer="http://idp.example", oidc_audience="x"), "https"),
        (AuthOptions(oidc_issuer="https://idp.example"), "audience"),
        (AuthOptions(oidc_audience="x"), "without --oidc-issuer"),
    ],
)
def test_settings_of_a_provider_that_can_t_be_right(store: Store, options: AuthOptions, why: str):
    with pytest.raises(CommandError, match=why):
        authentication_of(options, "127.0.0.1", store)


BOTH = AuthOptions(oidc_issuer="https://idp.example", oidc_audience="x", kubernetes=True)
PREFIXES = ("QM_OIDC_USERNAME_PREFIX", "QM_OIDC_GROUPS_PREFIX")


@pytest.mark.parametrize("missing", PREFIXES)
def test_names_of_a_provider_and_of_kubernetes_are_told_apart_or_said_to_be_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, missing: str
):
    for name in PREFIXES:
        monkeypatch.setenv(name, "" if name == missing else "oidc:")
    with pytest.raises(CommandError, match=f"{missing} does not tell them apart"):
        authentication_of(BOTH, "127.0.0.1", store)
    assert authentication_of(replace(BOTH, kubernetes=False), "127.0.0.1", store).ways == ["API tokens", "OIDC"]
    for prefix in ("-", "people:"):
        monkeypatch.setenv(missing, prefix)
        made = authentication_of(BOTH, "127.0.0.1", store)
        assert made.ways == ["API tokens", "OIDC", "Kubernetes tokens"]
        [oidc] = [each for each in made.verifiers if isinstance(each, OidcVerifier)]
        settings = {"QM_OIDC_USERNAME_PREFIX": oidc.settings.username_prefix}
        settings["QM_OIDC_GROUPS_PREFIX"] = oidc.settings.groups_prefix
        assert settings == {**dict.fromkeys(PREFIXES, "oidc:"), missing: "" if prefix == "-" else prefix}


def test_a_token_is_made_by_the_database_alone(database_url: str, store: Store):
    made = run("db", "admin-token", "--database", database_url)
    assert made.exit_code == 0, made.output
    token = store.access.find_token(made.stdout.strip())
    assert token is not None
    assert token.scopes[0].role == "platform-admin"
    assert "there is a token" in str(run("db", "admin-token", "--database", database_url).exception)
