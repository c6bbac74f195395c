"""Many seeded runs of gangs on nodes that fail at random: no gang is half placed for longer than the settings say, and
the ledger equals the pods.

1,000 with CI set (`.ci/run`), else `QM_RUNS` of them, 50 unless told otherwise. One takes half a second of a processor.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from random import Random

import pytest

from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.port import EVENTS, NODES, PODS, TRAIN_JOBS, Object
from queue_manager.cluster.simulated.clock import START
from queue_manager.cluster.simulated.fleet import gpu_node
from queue_manager.controller import controller
from queue_manager.store.records import CHARGED, State, WorkloadRow
from queue_manager.store.schema import metadata
from queue_manager.store.store import Store
from tests.controller.test_node_failures import hosts, settings
from tests.controller.world import CONFIGURATION, World, train_job

RUNS = 1000 if os.environ.get("CI") else int(os.environ.get("QM_RUNS", "50"))
TOGETHER = 25
"""Runs of one test: each begins with an empty database."""
NODES_IN_ALL, RACK_SIZE, GPUS = 8, 4, 4
APPENDED_TO = ("audit", "ledger", "revisions")
UNHEALTHY, WAIT = timedelta(seconds=60), timedelta(seconds=120)
TAINTED = timedelta(seconds=300)
"""How long Kubernetes leaves pods on a silent node before it makes others."""
SLACK = timedelta(seconds=15)
QUOTA = CONFIGURATION.replace("nominalQuota: 16", "nominalQuota: 100")
RULES = f"{QUOTA}---\n{settings(wait='120s')}"
RACK = "topology.queue-manager.io/rack"


class Run:
    """One cluster and what was seen of it. `lost_since` is when a node was lost, `half_since` since when a gang lacks
    pods on nodes that are well, by name."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = Random(seed)
        self.gangs: dict[str, int] = {}
        self.away: set[str] = set()
        self.silent_since: dict[str, datetime] = {}
        self.half_since: dict[str, datetime] = {}
        self.evictions = 0

    # --- what happens ---------------------------------------------------------------------------------------------

    async def submit(self) -> None:
        """Two or three gangs that want a rack, or any nodes, and together leave little free."""
        for number in range(self.chance.randint(2, 3)):
            name, nodes = f"g{number}", self.chance.randint(1, 3)
            wish = self.chance.choice(({"required_topology": RACK}, {"unconstrained_topology": "true"}))
            self.gangs[name] = nodes
            await self.world.submit(train_job(name, nodes, seconds=100_000, **wish))
        await self.world.clock.advance(10)

    async def fail(self) -> None:
        """Something happens to one or two nodes, or to a pod."""
        what = self.chance.choice((self.silence, self.silence, self.remove, self.cordon, self.taint, self.come_back))
        for name in self.chance.sample(sorted(self.nodes()), self.chance.choice((1, 1, 2))):
            what(name)
        if self.chance.random() < 0.2:
            await self.delete_a_pod()
        if self.chance.random() < 0.15:
            await self.world.kill()
            await self.world.clock.advance(self.chance.uniform(0, 20))
            await self.world.start()

    def rows(self) -> dict[str, WorkloadRow]:
        """The workloads that have not ended, by name."""
        return {row.name: row for row in self.world.store.load_workloads()}

    def nodes(self) -> dict[str, Object]:
        return {node["metadata"]["name"]: node for node in self.world.cluster.state.storage.all(NODES)}

    def silence(self, name: str) -> None:
        if is_ready(self.nodes()[name]):
            self.world.cluster.set_ready(name, False)

    def remove(self, name: str) -> None:
        self.world.cluster.remove_node(name)
        self.away.add(name)

    def cordon(self, name: str) -> None:
        self.world.cluster.change_node(name, unschedulable=True)

    def taint(self, name: str) -> None:
        self.world.cluster.change_node(name, taints=[{"key": "repair", "effect": "NoExecute"}])

    def come_back(self, name: str) -> None:
        """This node is well again, and all that were away are back."""
        self.heal(name)
        for other in sorted(self.away):
            self.world.cluster.add_node(node(int(other[1:])))
        self.away.clear()

    def heal(self, name: str) -> None:
        if not is_ready(self.nodes()[name]):
            self.world.cluster.set_ready(name, True)
        self.world.cluster.change_node(name, unschedulable=False, taints=[])

    async def delete_a_pod(self) -> None:
        if pods := self.world.pods():
            pod = self.chance.choice(pods)
            await self.world.user.delete(PODS, "ns", pod["metadata"]["name"])

    # --- what holds -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """At any moment."""
        now, nodes = self.world.clock.now(), self.nodes()
        for name, found in nodes.items():
            if is_ready(found):
                self.silent_since.pop(name, None)
            else:
                self.silent_since.setdefault(name, now)
        lost = {f"n{number}" for number in range(NODES_IN_ALL)} - nodes.keys()
        lost |= {name for name, since in self.silent_since.items() if now - since > UNHEALTHY + SLACK}
        rows = list(self.rows().values())
        for row in rows:
            self.check_places(row, lost, now)
        self.check_ledger(rows)

    def led(self) -> bool:
        """Whether a controller leads and has caught up."""
        controller = self.world.controller
        return controller is not None and controller.term is not None and controller.term.ready

    def check_places(self, row: WorkloadRow, lost: set[str], now: datetime) -> None:
        """It has places on nodes that are not lost or waits for some, and not for longer than it may."""
        if not self.led():
            return  # a controller that was killed is followed once its lease has run out, after 10 s
        if row.state not in (State.STARTING, State.RUNNING) or row.admission is None:
            self.half_since.pop(row.name, None)
            return
        since = row.admission.unplaced_at
        here = [pod for pod in self.world.pods(row.name) if pod["spec"].get("nodeName") not in lost]
        well = [p for p in here if p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
        places = set(hosts(row))
        if row.admission.admission.pod_sets[0].pinned:
            placed = not lost & places
        else:
            # kube-scheduler may have put its pods elsewhere; who is missing needs one of the places that are left.
            placed = len(well) + len(places - lost - {p["spec"]["nodeName"] for p in well}) >= self.gangs[row.name]
        assert since is not None or placed, f"{row.name} has no places and does not wait"
        assert since is None or now - since <= WAIT + SLACK, f"{row.name} waits since {since}"
        if len(well) >= self.gangs[row.name]:
            self.half_since.pop(row.name, None)
            return
        half = self.half_since.setdefault(row.name, now)
        assert now - half <= TAINTED + UNHEALTHY + WAIT + SLACK, f"{row.name} is half placed since {half}"

    def check_ledger(self, rows: list[WorkloadRow]) -> None:
        """Who is charged, is charged for all of its pods once; who is not, has none."""
        charged = sum(self.gangs[row.name] * GPUS for row in rows if row.state in CHARGED)
        assert self.world.charged() == charged
        for row in rows:
            pods = [p for p in self.world.pods(row.name) if p["spec"].get("nodeName")]
            fresh = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
            assert len({p["metadata"]["labels"].get(INDEX) for p in fresh}) <= self.gangs[row.name]
        assert self.world.store.check(self.world.clock.now()) == []

    async def settle(self) -> None:
        """All nodes are well again: so are all gangs that fit, and each of their pods is charged."""
        self.come_back(next(iter(self.nodes())) if self.nodes() else "")
        for name in self.nodes():
            self.heal(name)
        await self.world.clock.advance(5)
        try:
            await self.world.until(self.whole_or_nothing, within=900)
        except TimeoutError:
            pytest.fail(f"neither whole nor waiting: {self.summary()}")
        running = [pod for pod in self.world.pods() if pod["spec"].get("nodeName")]
        assert self.world.charged() == GPUS * len(running)
        for name in self.gangs:
            row = self.world.row(name)
            assert row is not None
            if row.admission is not None and row.admission.admission.pod_sets[0].pinned:
                assert sorted(p["spec"]["nodeName"] for p in self.world.pods(name)) == sorted(hosts(row))
        assert self.world.store.check(self.world.clock.now()) == []

    def summary(self) -> str:
        """What there is, in short."""
        lines = []
        for name in self.gangs:
            row = self.world.row(name)
            assert row is not None
            pods = [
                f"{p['spec'].get('nodeName', '-')}{'+' if p['metadata'].get('deletionTimestamp') else ''}"
                f"{'g' if p['spec'].get('schedulingGates') else ''}"
                for p in self.world.pods(name)
            ]
            planned = hosts(row) if row.admission is not None else []
            lines.append(f"{name} {row.state} {row.reason} {row.message!r} planned {planned} pods {pods}")
        return "\n".join(lines)

    async def end(self) -> None:
        """All jobs are deleted: nothing is charged any more."""
        for name in self.gangs:
            await self.world.user.delete(TRAIN_JOBS, "ns", name)
        await self.world.until(lambda: all(self.world.state(name) is State.FINISHED for name in self.gangs))
        assert self.world.charged() == 0

    def whole_or_nothing(self) -> bool:
        """Each gang runs with all of its pods, or waits for a rack that has room for it, and has none."""
        rows = self.rows()
        for name, count in self.gangs.items():
            row, pods = rows.get(name), self.world.pods(name)
            stay = [pod for pod in pods if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")]
            if row is not None and row.reason == "TopologyPlacementFailed" and not pods:
                continue
            if row is None or row.state is not State.RUNNING or row.reason or not len(stay) == len(pods) == count:
                return False
        return True


INDEX = "batch.kubernetes.io/job-completion-index"


def node(number: int) -> Object:
    """A node of the fleet."""
    return gpu_node(f"n{number}", "block-0", f"rack-{number // RACK_SIZE}", GPUS)


def forget_all(store: Store) -> None:
    """A database without workloads; what is only ever appended to stays. TRUNCATE makes new files, for which so few
    rows are not worth it."""
    tables = [table.name for table in reversed(metadata.sorted_tables) if table.name not in APPENDED_TO]
    with store.engine.begin() as connection:
        connection.exec_driver_sql(";".join(f"DELETE FROM {name}" for name in tables))


@pytest.mark.parametrize("first", range(0, RUNS, TOGETHER))
async def test_no_gang_stays_half_placed_and_the_ledger_equals_the_pods(
    store: Store, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(controller, "RENEW", 6.0)  # nobody is ever late here, and a third of all writes renewed leases
    replaced = 0
    for seed in range(first, min(first + TOGETHER, RUNS)):
        forget_all(store)
        start = START + timedelta(hours=12 * (seed - first))  # after all that the ledger has of the runs before
        async with World(store, seed, nodes=NODES_IN_ALL, rack=RACK_SIZE, start=start, configuration=RULES) as world:
            run = Run(world, seed)
            await run.submit()
            for _ in range(4):
                await run.fail()
                for _ in range(2):
                    await world.clock.advance(run.chance.choice((3, 20, 70, 130)))
                    run.check()
            await run.settle()
            await run.end()
            replaced += sum(e["reason"] == "NodesReplaced" for e in world.cluster.state.storage.all(EVENTS))
    assert replaced, "nothing was lost and replaced in all these runs"
