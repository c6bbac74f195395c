"""Commands against a real server: what they print, exit codes, and errors that say what to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from queue_manager.cli import options
from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import app, main
from queue_manager.config.export import export
from queue_manager.config.parse import parse_objects
from queue_manager.simulate.semantics import Semantics
from queue_manager.store.database import make_engine
from queue_manager.store.store import Store
from tests.api.world import SMALL, commit, document, job, queue
from tests.store.builders import NOW

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; its CommandError is in `result.exception`."""

    def run(*arguments: str, server: str = "", stdin: str | bytes = "") -> Result:
        chosen = ["--server", server] if server else []
        return CliRunner().invoke(app, [*arguments, *chosen], input=stdin)

    return run


def write(folder: Path, name: str, *documents: dict) -> str:
    path = folder / name
    path.write_text(export(parse_objects(documents).objects))
    return str(path)


def test_the_semantics_to_choose_are_those_of_simulate():
    assert {each.name: each.value for each in options.Semantics} == {each.name: each.value for each in Semantics}


def test_apply_and_export(run: Run, server: str, tmp_path: Path):
    file = write(tmp_path, "company.yaml", *SMALL)
    result = run("apply", "-f", file, "--reason", "first", server=server)
    assert result.exit_code == 0
    assert "Queue nlp created\n" in result.stdout
    assert "LocalQueue team-nlp/default created\n" in result.stdout
    assert result.stdout.endswith("revision 1\n")
    assert run("apply", "-f", file, server=server).stdout == "nothing to change at revision 1\n"
    assert run("export", server=server).stdout == Path(file).read_text()
    assert json.loads(run("export", "-o", "json", server=server).stdout)[0]["kind"] == "Flavor"


def test_apply_from_stdin_and_folder(run: Run, server: str, tmp_path: Path):
    text = export(parse_objects(SMALL).objects)
    assert run("apply", "-f", "-", server=server, stdin=text).exit_code == 0
    write(tmp_path, "a.yaml", queue("one", "research", 8))
    write(tmp_path, "b.yml", queue("two", "research", 8))
    (tmp_path / "notes.txt").write_text("no: [configuration")
    result = run("apply", "-f", str(tmp_path), "-o", "json", server=server)
    assert [change["name"] for change in json.loads(result.stdout)["changes"]] == ["one", "two"]


def test_what_is_no_text_is_refused_alike_from_stdin_and_from_a_file(run: Run, tmp_path: Path):
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"a: \xe4")
    for name, shown in (("-", "<stdin>"), (str(file), str(file))):
        error = run("apply", "-f", name, stdin=b"a: \xe4").exception
        assert isinstance(error, CommandError)
        assert (str(error), error.hint) == (f"{shown} is not UTF-8 text", "the first wrong byte is at 3")


def test_errors_have_the_file_and_its_own_line(run: Run, server: str, tmp_path: Path):
    first = write(tmp_path, "first.yaml", *SMALL)
    second = tmp_path / "second.yaml"
    second.write_text("apiVersion: queue-manager.io/v1\nkind: Queue\nmetadata: {name: a}\nspec: {cohrt: x}\n")
    result = run("apply", "-f", first, "-f", str(second), server=server)
    assert result.exit_code == 1
    assert isinstance(result.exception, CommandError)
    [error] = result.exception.errors  # type: ignore[attr-defined]
    assert (error["file"], error["line"]) == (str(second), 4)


def test_a_missing_file(run: Run, server: str):
    result = run("apply", "-f", "/does/not/exist.yaml", server=server)
    assert str(result.exception) == "can't read /does/not/exist.yaml: No such file or directory"


def test_prune_without_owner_says_what_to_give(run: Run, server: str, tmp_path: Path):
    result = run("apply", "-f", write(tmp_path, "x.yaml", *SMALL), "--prune", server=server)
    assert "owner" in str(result.exception)


def test_queues(run: Run, company: str):
    lines = run("queues", server=company).stdout.splitlines()
    assert lines[0].split()[:5] == ["QUEUE", "RUN", "WAIT", "FLAVOR", "RESOURCE"]
    [nlp] = [line for line in lines if line.strip().startswith("nlp")]
    assert lines[1].startswith("company/")
    at = lines.index(nlp)
    gpu = next(line for line in lines[at:] if " gpu " in line)
    assert gpu.split() == ["h100", "gpu", "80", "64", "16", "8", "24"]
    assert any("stopped (Hold)" in line for line in lines)


def test_workloads(run: Run, company: str):
    lines = run("workloads", "--state", "waiting", "--queue", "nlp", server=company).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["WORKLOAD", "team-nlp/later", "team-nlp/blocked"]
    assert "12 GPUs short in nlp" in lines[2]
    assert not any(line.endswith(" ") for line in lines)


def test_no_workload_at_all_is_said(run: Run, company: str):
    assert run("workloads", "--queue", "nlpp", server=company).stderr == (
        "no workload matches: there is no queue 'nlpp'; did you mean 'nlp'?\n"
    )
    assert run("workloads", "--queue", "nlp", "--text", "xx-", server=company).stderr == "no workload matches\n"


def test_workloads_as_yaml_with_a_limit(run: Run, company: str):
    found = yaml.safe_load(run("workloads", "--limit", "3", "-o", "yaml", server=company).stdout)
    assert [item["name"] for item in found["items"]] == ["held", "later", "blocked"]


def test_explain(run: Run, company: str):
    text = run("explain", "team-nlp/blocked", server=company).stdout
    lines = text.splitlines()
    assert lines[0].startswith("TrainJob team-nlp/blocked: waiting, created ")
    assert lines[1] == "queue company/research/nlp, position 1 of 2, priority 0"
    assert lines[2].startswith("waits since 2026-11-29T11:40:00Z (")
    assert "; looked at " in lines[2]
    assert lines[3:7] == [
        "",
        "in the way:",
        "  1. 12 GPUs short in nlp",
        "     Quota at nlp h100 nvidia.com/gpu: requested 16, available 4, missing 12",
    ]
    assert lines[7].startswith("     held by team-nlp/big  72 gpu, queue nlp, ada, priority 0, running for ")
    assert lines[8:] == [
        "     goes when 12 nvidia.com/gpu of flavor h100 become free there",
        "       or when nlp gets 12 nvidia.com/gpu of flavor h100 more (nominalQuota)",
    ]


def test_explain_as_json_is_the_answer_of_the_api(run: Run, company: str):
    assert json.loads(run("explain", "team-nlp/blocked", "-o", "json", server=company).stdout)["position"] == 1


@pytest.mark.parametrize(
    ("name", "message"), [("blocked", "is not the name"), ("team-nlp/nothing", "there is no workload")]
)
def test_explain_of_nothing(run: Run, company: str, name: str, message: str):
    result = run("explain", name, server=company)
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_names_cannot_drive_the_terminal(run: Run, company: str, store: Store):
    from queue_manager.store.records import Change

    commit(store, Change(row=job("x", "nlp", 1, message="\x1b[2J\x1b]0;owned\x07", age=1)))
    for command in (("workloads",), ("explain", "team-nlp/x")):
        text = run(*command, server=company).stdout
        assert "owned" in text
        assert "\x1b" not in text


def test_no_server_says_how_to_start_one(run: Run):
    result = run("workloads", server="http://127.0.0.1:9")
    assert result.exit_code == 1
    assert isinstance(result.exception, CommandError)
    assert result.exception.message == "no server answers at http://127.0.0.1:9"
    assert "queue-manager up" in result.exception.hint


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://[::1", "http://", "foo", "ftp://x"])
def test_what_is_no_url(run: Run, url: str):
    result = run("queues", server=url)
    assert isinstance(result.exception, CommandError)
    assert "is not the URL of a server" in result.exception.message


def test_a_token_that_can_be_none(run: Run, company: str):
    assert isinstance(run("queues", "--token", "a\nb", server=company).exception, CommandError)


@pytest.mark.parametrize("answer", [b"hello\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>", b""])
def test_a_server_of_another_kind(run: Run, answer: bytes):
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                if not connection.recv(1000):
                    return
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    address = listening.getsockname()
    result = run("queues", server=f"http://127.0.0.1:{address[1]}")
    socket.create_connection(address).close()  # nothing is asked on it: the end
    thread.join()
    listening.close()
    assert isinstance(result.exception, CommandError)


def test_another_program_at_the_url(run: Run, company: str):
    result = run("queues", server=f"{company}/elsewhere")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("workloads", "--limit", "x"),
        ("nothing",),
        ("explain",),
        ("queues", "-o", "xml"),
        ("db", "check"),
        ("controller",),
    ],
)
def test_bad_use_ends_with_2(run: Run, arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


def test_database_commands(run: Run, empty_database_url: str):
    result = run("db", "check", "--database", empty_database_url)
    assert result.exit_code == 1
    assert "db upgrade" in result.exception.hint  # type: ignore[union-attr]
    assert run("db", "upgrade", "--database", empty_database_url).stdout.startswith("schema is at ")
    assert run("db", "check", "--database", empty_database_url).stdout == "ok: ledger and invariants hold\n"
    engine = make_engine(empty_database_url)
    Store(engine).apply_configuration([], author="a", reason="", now=NOW, source="")
    engine.dispose()


def test_a_check_makes_no_database(run: Run, tmp_path: Path):
    result = run("db", "check", "--database", f"embedded:{tmp_path}/none")
    assert "there is no database in" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_check_in_a_folder_without_a_database_names_the_one_inside(run: Run, tmp_path: Path):
    result = run("db", "check", "--database", f"embedded:{tmp_path}")
    assert "there is no database in" in str(result.exception)
    assert list(tmp_path.iterdir()) == []
    made = tmp_path / "database" / "pg"
    made.mkdir(parents=True)
    (made / "PG_VERSION").write_text("17")
    result = run("db", "check", "--database", f"embedded:{tmp_path}")
    assert isinstance(result.exception, CommandError)
    assert f"--database embedded:{tmp_path}/database" in result.exception.hint
    assert not (tmp_path / "pg").exists()


@pytest.mark.parametrize("command", ["controller", "webhook"])
def test_a_role_without_credentials_says_what_to_give(run: Run, empty_database_url: str, tmp_path: Path, command: str):
    options = ("--database", empty_database_url, "--kubeconfig", f"{tmp_path}/none", "--port", "0")
    result = run(command, *options)
    assert isinstance(result.exception, CommandError)
    assert "--kubeconfig" in result.exception.hint


def test_up_without_credentials_says_what_to_give(run: Run, empty_database_url: str, tmp_path: Path):
    options = ("--database", empty_database_url, "--kubeconfig", f"{tmp_path}/none", "--port", "0")
    result = run("up", "--cluster", "kubeconfig", "--data", str(tmp_path), *options)
    assert isinstance(result.exception, CommandError)
    assert "--kubeconfig" in result.exception.hint


def test_database_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("queue_manager.cli.database.WAIT", 0.3)
    result = run("db", "check", "--database", "postgresql://nobody:secret@127.0.0.1:9/none?connect_timeout=1")
    assert result.exit_code == 1
    assert "secret" not in str(result.exception)


@pytest.mark.parametrize("command", ["api", "up"])
def test_without_authentication_nothing_listens_to_everybody(run: Run, command: str):
    options = ("--database", "postgresql://127.0.0.1:9/none", "--host", "0.0.0.0", "--auth", "optional")
    result = run(command, *options)
    assert result.exit_code == 1
    assert "without authentication" in str(result.exception)


def test_as_a_process(company: str, tmp_path: Path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(document("Queue", "a", {"cohrt": "x", "stopPolicy": "Stop"})))
    command = [sys.executable, "-m", "queue_manager.cli.main", "apply", "-f", str(bad), "--server", company]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{bad}:6: Queue a: spec.cohrt: unknown field 'cohrt' (did you mean 'cohort'?)",
        f"{bad}:7: Queue a: spec.stopPolicy: 'Stop' is not allowed here (one of None, Hold, HoldAndDrain)",
        "error: Configuration is not valid: 2 problem(s) found; nothing was changed",
    ]


def test_a_reader_that_has_seen_enough_is_no_error(company: str):
    command = f"{sys.executable} -m queue_manager.cli.main workloads --server {company} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_main_prints_hint_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["qm", "queues", "--server", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[0] == "error: no server answers at http://127.0.0.1:9"


@pytest.mark.parametrize(("action", "workload"), [("hold", "team-nlp/blocked"), ("release", "team-vision/held")])
def test_hold_and_release_ask_the_server(run: Run, company: str, store: Store, action: str, workload: str):
    result = run(action, workload, "--reason", "because", "--server", company)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"TrainJob {workload}: ")
    assert [(each.wish.value, each.reason) for each in store.pending_instructions()] == [(action, "because")]


def test_a_release_that_makes_no_sense_says_why(run: Run, company: str):
    result = run("release", "team-nlp/big", "--reason", "because", "--server", company)
    assert result.exit_code == 1
    assert "Nothing to release: team-nlp/big: it is running" in str(result.exception)


@pytest.mark.parametrize("arguments", [("hold", "team-nlp/big"), ("release",)])
def test_an_action_needs_a_reason(run: Run, arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("workloads", "--limit", "-1"), "'--limit': -1 is too small, at least 0 is allowed"),
        (("rollback", "x"), "'N': must be a whole number, is the text 'x'"),
        (("up", "--port", "99999"), "'--port': 99999 is too large, at most 65535 is allowed"),
        (("stop", "x", "--policy", "hold"), "'--policy': 'hold' is not one of 'None', 'Hold', 'HoldAndDrain'."),
    ],
)
def test_a_wrong_option_is_told_in_words_of_ours(arguments: tuple[str, ...], says: str):
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"Error: Invalid value for {says}")
