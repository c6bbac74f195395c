"""The view for people: `simulate -o table`."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from queue_manager.simulate.run import Simulation
from queue_manager.simulate.scenario import read_scenario
from queue_manager.simulate.semantics import Semantics
from queue_manager.simulate.table import print_result
from tests.simulate.build import admitted, flavor, local_queue, node, pod_set, queue, scenario, workload

PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def told(*objects: dict[str, Any], width: int = 100, semantics: Semantics = Semantics.OWN) -> str:
    out = io.StringIO()
    result = Simulation(read_scenario(scenario(*objects), semantics)).run()
    print_result(Console(file=out, width=width), result)
    return out.getvalue()


def preemption() -> list[dict[str, Any]]:
    """A high rank comes to a queue that is full of low ones, and a job that fits nowhere."""
    return [
        flavor(),
        queue("q", preemption=PREEMPTION),
        local_queue("q"),
        workload("low", cpu=3, status=admitted(cpu=3)),
        workload("high", cpu=4, priority=5, created=9),
        workload("huge", cpu=40, created=10),
    ]


def test_each_pass_tells_who_was_admitted_and_who_was_evicted_for_whom():
    assert told(*preemption()).splitlines() == [
        "s",
        "d",
        "1 queue, 0 nodes; at the start 1 running, 2 waiting",
        "",
        "Pass 1",
        "  -  default/low   evicted for default/high: a workload of its own queue came first (InClusterQueue)",
        "  ·  default/high  waits: room is kept for it; waits until the pods of 1 ending workload are gone",
        "",
        "Pass 2",
        "  +  default/high  admitted to q: main 1 pod on default (cpu)",
        "",
        "In the end",
        "1 of 3 workloads admitted, 2 wait, 1 eviction",
        "",
        "QUEUE  #  WORKLOAD      RANK  WHY IT WAITS",
        "q      1  default/low      0  WaitingForQuota",
        "                              3 cpu short in queue q (flavor default): needs 3, 0 free; held by",
        "                              default/high",
        "q      2  default/huge     0  ExceedsMaxQuota",
        "                              36 cpu short in queue q (flavor default): needs 40, it can never give",
        "                              more than 4; 40 short now; held by default/high",
    ]


def test_it_fits_the_width():
    for width in (60, 80, 140):
        assert max(map(len, told(*preemption(), width=width).splitlines())) <= width


def test_places_are_told_with_their_pods():
    text = told(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "t"},
            "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        },
        flavor(topologyName="t"),
        queue("q", {"default": {"cpu": 40}}),
        local_queue("q"),
        node("n1", {"rack": "r1"}),
        node("n2", {"rack": "r1"}),
        workload("a", podSets=[pod_set(count=3, requests={"cpu": "4"}, topologyRequest={"required": "rack"})]),
    )
    assert "  +  default/a  admitted to q: main 3 pods on default (cpu), at n1 ×2, n2 ×1" in text.splitlines()


def test_names_cannot_drive_the_terminal():
    assert "\x1b" not in told(flavor(), queue("q"), local_queue("q"), workload("\x1b[31mred"), workload("\x1b", cpu=9))
