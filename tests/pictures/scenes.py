"""What the pictures show: jobs that are submitted to a small fleet, and what is there once they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.cluster.simulated.fleet import BLOCK_LABEL, RACK_LABEL, gpu_node
from queue_manager.kinds.gates import INDEX_LABEL
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job
from tests.pictures.draw import ZONE_LABEL, picture

PREFIX = "queue-manager.io/"
CONFIGURATION = f"""
apiVersion: queue-manager.io/v1
kind: Topology
metadata: {{name: racks}}
spec:
  levels:
  - nodeLabel: {ZONE_LABEL}
  - nodeLabel: {BLOCK_LABEL}
  - nodeLabel: {RACK_LABEL}
  - nodeLabel: kubernetes.io/hostname
---
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {{name: team}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{{name: gpus, resources: [{{name: nvidia.com/gpu, nominalQuota: 1000}}]}}]
"""


@dataclass(frozen=True)
class Scene:
    """One picture, `name` of its file. `play` does what it shows and answers a line to stand below it."""

    name: str
    jobs: tuple[str, ...]
    play: Callable[[World], Awaitable[str]]


def fleet(world: World) -> None:
    """2 zones of 2 blocks of 2 racks of 3 nodes of 8 GPUs."""
    for block in range(1, 5):
        for rack in (1, 2):
            for number in (1, 2, 3):
                node = gpu_node(f"b{block}-r{rack}-n{number}", f"block-{block}", f"b{block}-rack-{rack}", 8)
                node["metadata"]["labels"][ZONE_LABEL] = f"zone-{'a' if block < 3 else 'b'}"
                world.cluster.add_node(node)


def job(name: str, pods: int, gpus: int, **annotations: str) -> Object:
    """An Indexed Job that runs for a day, with annotations of ours (underscores for dashes)."""
    made = batch_job(name, pods, gpus=gpus, seconds=86_400)
    made["metadata"]["annotations"] = _ours(annotations)
    return {**made, "spec": {**made["spec"], "completionMode": "Indexed"}}


def job_set(name: str, jobs: Mapping[str, tuple[int, int, int, Mapping[str, str]]], **annotations: str) -> Object:
    """A JobSet of replicated jobs: (replicas, pods of each, GPUs of a pod, annotations of the pod template)."""
    replicated = []
    for each, (replicas, pods, gpus, own) in jobs.items():
        spec = job(each, pods, gpus)["spec"]
        spec["template"]["metadata"]["annotations"] |= _ours(own)
        replicated.append({"name": each, "replicas": replicas, "template": {"spec": spec}})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {f"{PREFIX}queue": "team"}, "annotations": _ours(annotations)},
        "spec": {"replicatedJobs": replicated},
    }


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    return {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}


async def run(world: World, obj: Object) -> None:
    """Submits a job and lets time pass until all its pods are on nodes."""
    await world.submit(obj, JOB_SETS if obj["kind"] == "JobSet" else JOBS)
    name = obj["metadata"]["name"]
    row = await world.until_state(name, State.RUNNING)
    pods = sum(pod_set.count for group in row.pod_groups for pod_set in group.pod_sets)

    def bound() -> int:
        return sum(1 for pod in world.pods(f"{name}-") if pod["spec"].get("nodeName"))

    await world.until(lambda: bound() == pods, f"{name}: {pods} pods on nodes")


async def one_rack(world: World) -> str:
    """A gang that has to lie in one rack, beside jobs that leave holes."""
    await run(world, job("eval", 2, 8, required_topology=RACK_LABEL))
    await run(world, job("notebook", 1, 2, unconstrained_topology="true"))
    await run(world, job("train", 3, 8, required_topology=RACK_LABEL))
    return (
        "train asks for one rack and 3 whole nodes. The notebook was put beside eval, in the rack that was"
        " broken already, so whole racks are left."
    )


async def several_racks(world: World) -> str:
    """More pods than a rack has nodes: neighbours in rank are neighbours in the network."""
    await run(world, job("train", 5, 8, preferred_topology=RACK_LABEL))
    return "train prefers one rack, needs two, and gets those of one block. The numbers are ranks: 0 to 2 share a rack."


async def levels(world: World) -> str:
    """Zone around the job, block around launcher and workers, rack around each of the two."""
    crew = {"podset_group": "crew", "podset_group_required_topology": BLOCK_LABEL, "required_topology": RACK_LABEL}
    jobs = {
        "data": (1, 1, 4, {}),
        "launcher": (1, 1, 2, {**crew}),
        "workers": (1, 3, 8, crew),
    }
    await run(world, job("eval", 1, 4, required_topology=RACK_LABEL))
    await run(world, job_set("mpi", jobs, required_topology=ZONE_LABEL))
    return (
        "mpi lies in one zone, its launcher and workers (l, w) in one block of it, and all workers in one rack. Its"
        " data loader (d) may be anywhere in the zone."
    )


async def exclusive(world: World) -> str:
    """One replica a rack, and nobody else's there."""
    await run(world, job_set("slices", {"pod": (4, 2, 8, {})}, exclusive_topology=RACK_LABEL))
    await run(world, job_set("other", {"pod": (2, 2, 8, {})}, exclusive_topology=RACK_LABEL))
    return "Each replica of slices has a rack for itself (p replica.pod), and no replica of other is in one of them."


async def before_failure(world: World) -> str:
    """A gang over two racks, all of its nodes alive."""
    await run(world, job("train", 5, 8, preferred_topology=RACK_LABEL))
    return "Before: train runs in two racks of one block."


async def after_failure(world: World) -> str:
    """A node of it fails, and its pod goes on where there is room in the same block."""
    await run(world, job("train", 5, 8, preferred_topology=RACK_LABEL))
    [lost] = [pod for pod in world.pods("train-") if pod["metadata"]["labels"][INDEX_LABEL] == "1"]
    world.cluster.set_ready(lost["spec"]["nodeName"], False)

    def moved() -> bool:
        there = [
            pod["spec"].get("nodeName") for pod in world.pods("train-") if "deletionTimestamp" not in pod["metadata"]
        ]
        return len(set(there)) == len(there) == 5 and None not in there and lost["spec"]["nodeName"] not in there

    await world.until(moved, "all on healthy nodes", within=3600)
    return "After: the node of rank 1 is gone, rank 1 has another one, all others stay. It is the same admission."


async def no_rack(world: World) -> str:
    """Enough GPUs in all, and no rack with enough: what explain says."""
    await run(world, job_set("eval", {"pod": (8, 2, 8, {})}, spread_topology=RACK_LABEL))
    await world.submit(job("train", 2, 8, required_topology=RACK_LABEL), JOBS)
    row = await world.until_state("train", State.WAITING)
    await world.until(lambda: (world.known_row("train").message or "") != "", "a reason")
    row = world.known_row("train")
    return f"train waits ({row.reason}): {row.message}"


SCENES = (
    Scene("one-rack", ("train", "eval", "notebook"), one_rack),
    Scene("several-racks", ("train",), several_racks),
    Scene("levels", ("mpi", "eval"), levels),
    Scene("exclusive", ("slices", "other"), exclusive),
    Scene("before-failure", ("train",), before_failure),
    Scene("after-failure", ("train",), after_failure),
    Scene("no-rack", ("eval", "train"), no_rack),
)


async def played(scene: Scene, store: Store) -> str:
    """The picture of a scene."""
    world = World(store, nodes=0)
    fleet(world)
    world.configure(CONFIGURATION)
    async with world:
        await world.until_ready()
        caption = await scene.play(world)
        return picture(world, scene.jobs, caption)
