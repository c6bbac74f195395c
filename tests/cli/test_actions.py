"""The commands that ask something of a workload."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from queue_manager.cli.main import app
from queue_manager.store.store import Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "noted"),
    [
        (("move", "team-nlp/big", "vision"), {"queue": "vision", "force": False}),
        (("move", "team-nlp/big", "vision", "--force"), {"queue": "vision", "force": True}),
        (("reprioritise", "team-nlp/big", "high"), {"priorityClass": "high"}),
        (("evict", "team-nlp/big"), {"requeueAfter": None}),
        (("evict", "team-nlp/big", "--requeue-after", "10m"), {"requeueAfter": 600}),
    ],
)
def test_they_ask_the_server_with_the_reason(company: str, store: Store, arguments: Any, noted: Any):
    done = run(*arguments, "--reason", "maintenance", "--server", company)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("TrainJob team-nlp/big: running in queue nlp")
    [instruction] = store.pending_instructions()
    assert (instruction.wish.value, instruction.arguments, instruction.reason) == (arguments[0], noted, "maintenance")


def test_a_move_to_nowhere_says_what_there_is(company: str):
    done = run("move", "team-nlp/big", "visoin", "--reason", "x", "--server", company)
    assert done.exit_code == 1
    assert "did you mean 'vision'?" in str(done.exception)


@pytest.mark.parametrize("arguments", [("move", "a/b", "c"), ("reprioritise", "a/b", "c"), ("evict", "a/b")])
def test_they_need_a_reason(arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2
