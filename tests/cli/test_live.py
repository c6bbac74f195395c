"""The live view: a screen for terminals, lines for everything else."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime

import pytest
from rich.console import Console

from queue_manager.cli.live import bar, render, run_live

AT = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


def cell(**amounts: int) -> dict:
    zero = dict.fromkeys(("nominal", "used", "borrowed", "lent", "draining", "waiting"), 0)
    return {"flavor": "h100", "resource": "nvidia.com/gpu", **zero, **amounts}


def workload(index: int, state: str = "waiting") -> dict:
    return {
        "namespace": "team",
        "name": f"job-{index}",
        "queue": "nlp",
        "state": state,
        "created": AT.isoformat(),
        "message": "8 GPUs short",
        "reason": "",
    }


NODE = {
    "kind": "Cohort",
    "name": "research",
    "workloads": {"running": 2, "waiting": 1},
    "cells": [cell(nominal=64, used=72, borrowed=8, waiting=16)],
    "children": [{"kind": "Queue", "name": "nlp", "cells": [], "children": []}],
}


def screen(snapshot: dict, width: int = 110, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(render(snapshot, height))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_screen():
    text = screen(
        {
            "title": "Queue Manager (demo)",
            "url": "http://127.0.0.1:8080",
            "tree": [NODE],
            "workloads": [workload(1), workload(2, "running")],
            "events": [{"at": AT, "text": "team/job-1 waits"}],
        }
    )
    for part in (
        "http://127.0.0.1:8080",
        "research",
        "72 / 64",
        "8 borrowed",
        "16 waiting",
        "8 GPUs short",
        "12:00:00",
    ):
        assert part in text


def test_what_does_not_fit_is_counted():
    text = screen({"tree": [NODE], "workloads": [workload(index) for index in range(100)]}, height=20)
    assert len(text.splitlines()) <= 20
    assert "more" in text


def test_many_idle_queues_leave_room_for_the_busy_and_for_workloads():
    idle = [{"kind": "Queue", "name": f"idle-{n}", "cells": [cell(nominal=8)], "children": []} for n in range(100)]
    busy = {"kind": "Queue", "name": "busy", "cells": [cell(nominal=8, used=8)], "children": []}
    text = screen({"tree": [{**NODE, "children": [*idle, busy]}], "workloads": [workload(1)]}, height=20)
    assert len(text.splitlines()) <= 20
    for part in ("research", "busy", "idle-0 ", "... and 92 more queues and cohorts", "team/job-1"):
        assert part in text


def test_what_is_over_stands_last_and_the_newest_of_it_first():
    old, new = workload(1, "finished"), {**workload(2, "finished"), "created": AT.replace(hour=13).isoformat()}
    text = screen({"tree": [NODE], "workloads": [old, new, workload(3), workload(4, "running")]})
    names = ("job-3", "job-4", "job-2", "job-1")
    assert [text.index(name) for name in names] == sorted(text.index(name) for name in names)


def test_empty_snapshot():
    assert "Queue Manager" in screen({})


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"nominal": 10, "used": 5}, "█████·····"),
        ({"nominal": 10, "used": 5, "draining": 2}, "███▒▒·····"),
        ({"nominal": 5, "used": 10}, "██████████"),
        ({}, "··········"),
    ],
)
def test_bar(amounts: dict[str, int], expected: str):
    assert bar(cell(**amounts), 10).plain == expected


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    events = [{"at": AT, "text": "team/job-1 waits"}, {"at": AT, "text": "team/job-1 \x1b[2Jruns"}]
    shown = iter([events[:1], events, events])
    stop = threading.Event()

    def snapshot() -> dict:
        found = next(shown)
        if len(found) == 2:
            stop.set()
        return {"notes": ["ready"], "events": found}

    run_live(snapshot, stop, interval=0.01)
    assert capsys.readouterr().out.splitlines() == [
        "ready",
        "12:00:00 team/job-1 waits",
        "12:00:00 team/job-1 \ufffd[2Jruns",
    ]
