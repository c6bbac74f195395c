"""Completion, by the shells themselves where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queue_manager.cli.main import app

BIN = Path(sys.executable).parent
ASK = {
    "bash": """
        source <(qm completion bash)
        COMP_WORDS=({words}) COMP_CWORD={last}
        complete -p qm >/dev/null || exit 3
        _qm_completion qm
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "zsh": """
        autoload -Uz compinit && compinit -u -D
        source <(qm completion zsh)
        # What zsh would offer is caught where it is handed over: *: :(("name":"help" ...))
        _arguments() {{
            local spec=${{${{1#*\\(\\(}}%\\)\\)}} item
            for item in ${{(z)spec}}; do print -r -- ${{${{item#\\"}}%%\\"*}}; done
        }}
        words=({words}) CURRENT={last_of_one} service=qm
        _qm_completion
    """,
    "fish": """
        qm completion fish | source
        complete --do-complete '{line}'
    """,
}


def ask(shell: str, words: list[str], server: str) -> list[str]:
    """What a shell offers for the last word."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    quoted = " ".join(f"'{word}'" for word in words)
    script = ASK[shell].format(words=quoted, last=len(words) - 1, last_of_one=len(words), line=" ".join(words))
    bare = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "QM_SERVER": server}
    done = subprocess.run(
        [shell, *bare, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [line.partition("\t")[0].partition(":")[0].strip('"') for line in done.stdout.splitlines() if line]


OFFERED = {
    "qm expl": ["explain"],
    "qm explain team-nlp/b": ["team-nlp/big", "team-nlp/blocked"],
    "qm workloads --queue v": ["vision"],
    "qm workloads --state re": ["reserved"],
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str, company: str):
    assert {line: sorted(ask(shell, line.split(), company)) for line in OFFERED} == OFFERED


COMMANDS = {
    "explain team-nlp/bi": ["team-nlp/big"],
    "move team-nlp/big n": ["nlp"],
    "reprioritise team-nlp/big ": ["high"],
    "drain queue n": ["nlp"],
    "drain flavor h": ["h100"],
    "stop n": ["nlp"],
    "stop --kind flavor h": ["h100"],
    "stop --kind cohort rese": ["research"],
    "stop --kind local-queue team-nlp": ["team-nlp/default"],
    "tokens revoke c": ["ci"],
    "usage --by k": ["kind"],
}


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_command_takes_is_offered(line: str, company: str):
    assert CliRunner().invoke(app, ["tokens", "create", "ci", "--role", "viewer", "--server", company]).exit_code == 0
    words = ["qm", *line.split(" ")]
    asked = {"_QM_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    told = CliRunner(env={**asked, "QM_SERVER": company}).invoke(app, [], prog_name="qm", complete_var="_QM_COMPLETE")
    assert told.stdout.split() == COMMANDS[line]


def test_no_server_is_no_error():
    assert ask("bash", ["qm", "explain", "team-nlp/b"], "http://127.0.0.1:9") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_both_names(shell: str):
    script = CliRunner().invoke(app, ["completion", shell]).stdout
    assert "_QM_COMPLETE" in script
    assert "_QUEUE_MANAGER_COMPLETE" in script


def test_another_shell_is_bad_use():
    assert CliRunner().invoke(app, ["completion", "cmd"]).exit_code == 2
