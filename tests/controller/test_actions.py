"""Moving, reprioritising and evicting: the row and the job's labels change together, whoever dies in between."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from api.context import Context
from api.workloads.service import history
from queue_manager.cluster.port import EVENTS, JOB_SETS, JOBS, PODS, TRAIN_JOBS, ApiError, Object, PatchType, Resource
from queue_manager.cluster.simulated.faults import SeededFaults
from queue_manager.store.records import State, Wish
from queue_manager.store.store import Store
from tests.controller.test_crashes import running_gpus
from tests.controller.world import World, batch_job, elastic_job, job_set, train_job, with_checks

QUEUE, PRIORITY = "queue-manager.io/queue", "queue-manager.io/priority-class"


def queue(name: str, gpus: int, *, selector: str = "{}", more: str = "", resource: str = "nvidia.com/gpu") -> str:
    """One more queue on the same flavor."""
    return f"""
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {{name: {name}}}
spec:
  namespaceSelector: {selector}
  preemption: {{withinClusterQueue: LowerPriority}}
  resourceGroups:
  - coveredResources: [{resource}]
    flavors: [{{name: gpus, resources: [{{name: {resource}, nominalQuota: {gpus}}}]}}]
{more}"""


def local(name: str, target: str) -> str:
    """A local queue of namespace `ns`."""
    head = "apiVersion: queue-manager.io/v1\nkind: LocalQueue\n"
    return f"{head}metadata: {{name: {name}, namespace: ns}}\nspec: {{queue: {target}}}\n"


def labels(world: World, name: str, resource: Resource = TRAIN_JOBS) -> dict[str, str]:
    found = world.cluster.state.get(resource, "ns", name)["metadata"].get("labels") or {}
    return {key: value for key, value in found.items() if key in (QUEUE, PRIORITY)}


async def relabel(world: World, name: str, resource: Resource = TRAIN_JOBS, **change: str) -> None:
    """What a user writes on the job."""
    wanted = {{"queue": QUEUE, "priority": PRIORITY}[key]: value for key, value in change.items()}
    await world.user.patch(resource, "ns", name, {"metadata": {"labels": wanted}}, PatchType.MERGE)


def message(world: World, name: str, reason: str) -> str:
    """Of the last of our events with that reason."""
    found = world.cluster.state.storage.all(EVENTS)
    return [e["message"] for e in found if e["involvedObject"]["name"] == name and e["reason"] == reason][-1]


async def carried_out(world: World, name: str) -> None:
    """Lets time pass until nothing is asked of it any more and its labels are written."""
    done = lambda: not world.store.pending_instructions() and not world.known_row(name).relabels  # noqa: E731
    await world.until(done, "carried out, and the labels are written")


def sound(world: World) -> None:
    """True at every moment, whatever has just been killed."""
    charged = sum(world.charged(name) for name in ("team", "other", "third"))
    assert running_gpus(world) <= charged, "pods run that nobody is charged for"
    assert world.store.check(world.clock.now()) == []


# --- move -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (TRAIN_JOBS, train_job("a", 2, seconds=600)),
        (JOBS, batch_job("a", 2, seconds=600)),
        (JOB_SETS, job_set("a", 2, 1, gpus=4, seconds=600)),
    ],
    ids=["TrainJob", "Job", "JobSet"],
)
async def test_a_running_job_is_charged_to_the_other_queue_at_once_and_runs_on(
    store: Store, resource: Resource, obj: Object
) -> None:
    async with World(store) as world:
        world.configure(queue("other", 8))
        await world.submit(obj, resource)
        row = await world.until_state("a", State.RUNNING)
        before = {pod["metadata"]["uid"] for pod in world.pods("a")}
        world.ask("a", Wish.MOVE, reason="it is theirs", queue="other")
        await carried_out(world, "a")
        moved = world.known_row("a")
        assert (moved.state, moved.queue, moved.local_queue, moved.attempt) == (State.RUNNING, "other", "other", 1)
        assert labels(world, "a", resource)[QUEUE] == "other"
        assert (world.charged("team"), world.charged("other")) == (0, 8)
        assert {pod["metadata"]["uid"] for pod in world.pods("a")} == before
        assert message(world, "a", "Moved") == "Moved from queue team to queue other by eve: it is theirs"
        shown = history(Context(store, world.clock.now), moved)
        assert [entry.queue for entry in shown.admissions] == ["team"]
        [action] = shown.actions
        assert (action.action, action.reason, action.arguments) == ("move", "it is theirs", {"queue": "other"})
        intervals = [(i.queue, i.until is None) for i in store.history(row.uid).intervals]
        assert intervals == [("team", False), ("other", True)]
        assert store.check(world.clock.now()) == []
        await world.clock.advance(700)
        await world.until_state("a", State.FINISHED)
        assert (world.charged("team"), world.charged("other")) == (0, 0)


async def test_what_it_leaves_in_its_old_queue_lets_others_start(store: Store) -> None:
    async with World(store, nodes=8) as world:
        world.configure(queue("other", 16))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 4, seconds=600))
        await world.clock.advance(5)
        assert world.state("b") is State.WAITING
        world.ask("a", Wish.MOVE, queue="other")
        await world.until_state("b", State.RUNNING)
        assert world.state("a") is State.RUNNING


async def test_a_waiting_job_goes_to_another_queue_with_its_place_in_time(store: Store) -> None:
    async with World(store, nodes=8) as world:
        world.configure(queue("other", 16) + "---\n" + local("others", "other"))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 4, seconds=600))
        await world.until(lambda: world.row("b") is not None)
        world.ask("b", Wish.MOVE, queue="other")
        await world.until_state("b", State.RUNNING)
        await carried_out(world, "b")
        assert labels(world, "b")[QUEUE] == "others"
        row = world.known_row("b")
        assert (row.queue, row.local_queue) == ("other", "others")
        assert row.admission is not None
        assert row.admission.admission.queue == "other"


async def test_a_move_of_what_drains_or_is_held_counts_from_its_next_start(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.EVICT)
        world.ask("a", Wish.MOVE, queue="other")
        await world.until(lambda: world.known_row("a").queue == "other")
        assert world.charged("other") == 0
        await world.until(lambda: world.known_row("a").attempt == 2)
        assert (world.charged("team"), world.charged("other")) == (0, 16)
        world.ask("a", Wish.HOLD)
        await world.until_state("a", State.HELD)
        world.ask("a", Wish.MOVE, queue="team")
        await carried_out(world, "a")
        assert (world.state("a"), world.known_row("a").queue) == (State.HELD, "team")
        world.ask("a", Wish.RELEASE)
        await world.until_state("a", State.RUNNING)
        assert (world.charged("team"), world.charged("other")) == (16, 0)
        assert store.check(world.clock.now()) == []


@pytest.mark.parametrize(
    ("more", "target", "why"),
    [
        (
            queue("other", 8),
            "othr",
            "no local queue 'othr', nor is there a queue of that name; did you mean 'other'?",
        ),
        (queue("other", 8), "team", "it is in queue team already"),
        (queue("other", 8, selector="{matchLabels: {team: x}}"), "other", "queue other does not take namespace ns"),
        (queue("cpus", 8, resource="cpu"), "cpus", "nvidia.com/gpu"),
        (queue("small", 4), "small", "4 left, borrowing included; force (--force) moves it nonetheless"),
        (queue("limited", 16, more="  limits: {perUser: {running: 0}}\n"), "limited", "limit running of queue limited"),
        (queue("stopped", 16, more="  stopPolicy: Hold\n"), "stopped", "queue stopped is stopped (Hold)"),
    ],
    ids=["unknown", "the same", "namespace", "resources", "quota", "limits", "stopped"],
)
async def test_a_running_job_stays_where_it_is_when_it_may_not_move_and_people_are_told(
    store: Store, more: str, target: str, why: str
) -> None:
    async with World(store) as world:
        world.configure(more)
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        id_ = world.ask("a", Wish.MOVE, queue=target)
        await carried_out(world, "a")
        assert why in store.refusal_of("workload/ns/a", id_)
        await world.until(lambda: "MoveRefused" in world.events("a"))
        assert why in message(world, "a", "MoveRefused")
        assert (world.state("a"), world.charged(), labels(world, "a")[QUEUE]) == (State.RUNNING, 8, "team")
        asked, refused = reversed(store.audit_entries(object="workload/ns/a"))
        assert (asked.action, asked.who, refused.action, refused.who) == ("move", "eve", "refuse", "queue-manager")


@pytest.mark.parametrize(
    ("more", "target", "why"),
    [
        (queue("other", 8, selector="{matchLabels: {team: x}}"), "other", "queue other does not take namespace ns"),
        (queue("cpus", 8, resource="cpu"), "cpus", "queue cpus has no quota of nvidia.com/gpu, which its pod set node"),
        (queue("small", 4), "small", "it asks for 8 nvidia.com/gpu, queue small can have 4 at most"),
    ],
    ids=["namespace", "resources", "never enough"],
)
async def test_a_waiting_job_is_not_moved_to_where_it_could_never_start(
    store: Store, more: str, target: str, why: str
) -> None:
    async with World(store) as world:
        world.configure(more)
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 2))
        await world.until(lambda: world.row("b") is not None)
        id_ = world.ask("b", Wish.MOVE, queue=target)
        await carried_out(world, "b")
        assert why in store.refusal_of("workload/ns/b", id_)
        assert (world.known_row("b").queue, labels(world, "b")[QUEUE]) == ("team", "team")


async def test_who_insists_moves_it_over_quota_and_preemption_follows_its_rules(store: Store) -> None:
    async with World(store, nodes=8) as world:
        world.configure(queue("small", 4))
        await world.submit(train_job("a", 2, seconds=6000))
        await world.until_state("a", State.RUNNING)
        id_ = world.ask("a", Wish.MOVE, queue="small", force=True)
        await carried_out(world, "a")
        assert store.refusal_of("workload/ns/a", id_) == ""
        assert (world.state("a"), world.charged("small")) == (State.RUNNING, 8)
        assert "although it is charged 8 nvidia.com/gpu" in message(world, "a", "Moved")
        job = train_job("b", 1, high=True)
        job["metadata"]["labels"][QUEUE] = "small"
        await world.submit(job)
        await world.until_state("b", State.RUNNING)
        assert "Preempted" in world.events("a")


async def test_two_that_move_at_once_do_not_take_the_same_room(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 8))
        for name in ("a", "b"):
            await world.submit(train_job(name, 2, seconds=600))
            await world.until_state(name, State.RUNNING)
        ids = [world.ask(name, Wish.MOVE, queue="other") for name in ("a", "b")]
        await carried_out(world, "a")
        await carried_out(world, "b")
        assert sorted(bool(store.refusal_of(f"workload/ns/{n}", i)) for n, i in zip("ab", ids, strict=True)) == [0, 1]
        assert (world.charged("team"), world.charged("other")) == (8, 8)


async def test_an_elastic_job_moves_with_its_size_and_grows_in_its_new_queue(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 12))
        await world.submit(elastic_job("a", 2, completions=4, seconds=6000), JOBS)
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.MOVE, queue="other")
        await carried_out(world, "a")
        assert (world.charged("team"), world.charged("other")) == (0, 8)
        body = {"spec": {"parallelism": 3}}
        await world.user.patch(JOBS, "ns", "a", body, PatchType.MERGE)
        await world.until(lambda: world.charged("other") == 12)
        assert store.check(world.clock.now()) == []


async def test_a_reserved_job_waits_for_the_checks_of_its_new_queue_alone(store: Store) -> None:
    async with World(store) as world:
        world.configure(with_checks("dataset-cached"))
        world.configure(queue("other", 8) + "---\n" + queue("third", 8, more="  admissionChecks: [{name: licence}]\n"))
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RESERVED)
        world.ask("a", Wish.MOVE, queue="third")
        await carried_out(world, "a")
        row = world.known_row("a")
        assert (row.state, row.queue, world.charged("team"), world.charged("third")) == (State.RESERVED, "third", 0, 8)
        assert row.message.endswith("once these checks are ready: licence")
        world.ask("a", Wish.MOVE, queue="other")
        await world.until_state("a", State.RUNNING)
        await carried_out(world, "a")
        assert (world.charged("third"), world.charged("other"), world.admissions("a")) == (0, 8, 1)
        world.ask("a", Wish.MOVE, queue="third")
        await carried_out(world, "a")
        assert (world.state("a"), world.charged("third")) == (State.RUNNING, 8)


async def test_a_job_that_names_its_queue_by_a_label_of_kueue_keeps_that_label(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16))
        job = train_job("a", 2, seconds=600)
        kueue = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "high"}
        job["metadata"]["labels"] = kueue
        await world.submit(job)
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.MOVE, queue="other")
        await carried_out(world, "a")
        found = world.cluster.state.get(TRAIN_JOBS, "ns", "a")["metadata"]["labels"]
        assert found == {**kueue, "kueue.x-k8s.io/queue-name": "other"}
        assert (world.known_row("a").queue, world.known_row("a").priority) == ("other", 100)


async def test_a_moved_job_restarts_in_its_new_queue(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 8))
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.MOVE, queue="other")
        await carried_out(world, "a")
        world.ask("a", Wish.EVICT)
        await world.until(lambda: world.known_row("a").attempt == 2)
        assert (world.charged("team"), world.charged("other")) == (0, 8)


# --- labels -----------------------------------------------------------------------------------------------------


async def test_a_users_label_moves_a_waiting_job_also_after_it_was_moved(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16) + "---\n" + queue("third", 16))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 4))
        await world.until(lambda: world.row("b") is not None)
        world.ask("b", Wish.MOVE, queue="other")
        await carried_out(world, "b")
        assert world.known_row("b").queue == "other"
        await relabel(world, "b", queue="third", priority="high")
        await world.until(lambda: world.known_row("b").queue == "third")
        assert world.known_row("b").priority == 100


async def test_a_users_label_does_not_move_an_admitted_job_which_says_so_until_it_waits_again(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await relabel(world, "a", queue="other", priority="high")
        await world.until(lambda: "LabelNotFollowed" in world.events("a"))
        row = world.known_row("a")
        assert (row.state, row.queue, row.priority) == (State.RUNNING, "team", 0)
        assert (
            f"metadata.labels[{QUEUE}] says 'other', which counts only once it waits again: 'team' counts"
            in row.message
        )
        assert f"metadata.labels[{PRIORITY}] says 'high'" in row.message
        await world.clock.advance(60)
        assert world.events("a").count("LabelNotFollowed") == 1
        await relabel(world, "a", queue="team")
        await world.until(lambda: QUEUE not in world.known_row("a").message)
        await relabel(world, "a", queue="other")
        world.ask("a", Wish.EVICT)
        await world.until(lambda: world.known_row("a").attempt == 2)
        assert (world.known_row("a").queue, world.known_row("a").priority) == ("other", 100)


async def test_a_label_that_the_api_server_refuses_counts_nonetheless(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16) + "---\n" + queue("third", 4))
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        await world.submit(train_job("b", 4, seconds=600))
        await world.until(lambda: world.row("b") is not None)
        patch = world.cluster.patch

        async def refuses(resource: Resource, namespace: str, name: str, body: Any, *more: Any, **named: Any) -> Object:
            if isinstance(body, dict) and "labels" in body.get("metadata", {}):
                raise ApiError(403, "Forbidden", "a policy of this cluster keeps labels as they are")
            return await patch(resource, namespace, name, body, *more, **named)

        monkeypatch.setattr(world.cluster, "patch", refuses)
        world.ask("b", Wish.MOVE, queue="other")
        await world.until(lambda: "RelabelRefused" in world.events("b"))
        assert "keeps labels as they are" in message(world, "b", "RelabelRefused")
        assert world.known_row("b").queue == "other"
        await world.clock.advance(120)
        assert (world.known_row("b").queue, labels(world, "b")[QUEUE]) == ("other", "team")
        # Whatever else its user writes meanwhile counts, as for everything that waits.
        await relabel(world, "b", queue="third")
        await world.until(lambda: world.known_row("b").queue == "third" and not world.known_row("b").relabels)
        assert labels(world, "b")[QUEUE] == "third"
        world.ask("b", Wish.MOVE, queue="team")
        await world.until(lambda: world.known_row("b").queue == "team")
        assert [r.after for r in world.known_row("b").relabels] == ["team"]


async def test_all_pods_of_a_group_get_the_label(store: Store) -> None:
    async with World(store) as world:
        world.configure(queue("other", 16))
        meta = {"labels": {QUEUE: "team", "queue-manager.io/pod-group": "crew"}}
        meta["annotations"] = {"queue-manager.io/pod-group-size": "2"}
        spec = {
            "schedulingGates": [{"name": "queue-manager.io/admission"}],
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}],
        }
        for name in ("crew-0", "crew-1"):
            await world.user.create(PODS, "ns", {"metadata": {**meta, "name": name}, "spec": spec})
        await world.until_state("crew", State.RUNNING)
        world.ask("crew", Wish.MOVE, queue="other")
        await carried_out(world, "crew")
        assert {labels(world, name, PODS)[QUEUE] for name in ("crew-0", "crew-1")} == {"other"}
        assert (world.state("crew"), world.charged("team"), world.charged("other")) == (State.RUNNING, 0, 8)


# --- reprioritise -----------------------------------------------------------------------------------------------


async def test_a_waiting_job_of_another_priority_class_passes_others(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=60, high=True))
        await world.until_state("a", State.RUNNING)
        for name in ("b", "c"):
            await world.submit(train_job(name, 4, seconds=60))
            await world.until(lambda name=name: world.row(name) is not None)
        world.ask("c", Wish.REPRIORITISE, priorityClass="high")
        await carried_out(world, "c")
        assert labels(world, "c")[PRIORITY] == "high"
        assert (world.known_row("c").priority, world.known_row("c").priority_class) == (100, "high")
        await world.until_state("c", State.RUNNING)
        assert world.state("b") is State.WAITING
        assert message(world, "c", "Reprioritised") == "Priority class high (100) in place of none (0) by eve: because"


async def test_a_running_job_of_another_priority_class_is_no_victim_any_more(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600))
        await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.REPRIORITISE, priorityClass="high")
        await carried_out(world, "a")
        await world.submit(train_job("b", 4, high=True))
        await world.clock.advance(30)
        assert (world.state("a"), world.state("b")) == (State.RUNNING, State.WAITING)
        assert store.check(world.clock.now()) == []


async def test_an_unknown_priority_class_or_the_same_is_refused(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600, high=True))
        await world.until_state("a", State.RUNNING)
        unknown = world.ask("a", Wish.REPRIORITISE, priorityClass="highest")
        same = world.ask("a", Wish.REPRIORITISE, priorityClass="high")
        await carried_out(world, "a")
        assert store.refusal_of("workload/ns/a", unknown) == "there is no priority class highest"
        assert store.refusal_of("workload/ns/a", same) == "its priority class is high already"


# --- evict ------------------------------------------------------------------------------------------------------


async def test_an_evicted_job_stays_away_for_as_long_as_was_asked(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 4, seconds=600))
        row = await world.until_state("a", State.RUNNING)
        world.ask("a", Wish.EVICT, reason="node work", requeueAfter=300)
        await world.until_state("a", State.WAITING)
        [first] = store.history(row.uid).admissions
        assert first.cause == "EvictedByOperator"
        words = "Stopped by eve: node work. It queues again with its old place in time, not before"
        assert first.cause_message.startswith(words)
        assert message(world, "a", "Evicted") == first.cause_message
        assert world.charged() == 0
        await world.clock.advance(250)
        assert world.state("a") is State.WAITING
        await world.until_state("a", State.RUNNING)
        waiting = world.ask("a", Wish.EVICT)
        again = world.ask("a", Wish.EVICT)
        await world.until(lambda: world.known_row("a").attempt == 3)
        assert store.refusal_of("workload/ns/a", waiting) == ""
        assert store.refusal_of("workload/ns/a", again) in (
            "it is being stopped already",
            "it is waiting: there is nothing to stop",
        )


# --- whoever dies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
async def test_row_and_label_come_together_whoever_dies_between(store: Store, seed: int) -> None:
    chance = Random(seed)
    faults = SeededFaults(Random(seed + 1), requests=0.1, watches=0.05)
    async with World(store, seed, faults) as world:
        world.configure(queue("other", 8) + "---\n" + queue("third", 16))
        await world.submit(train_job("a", 2, seconds=60000))
        await world.submit(train_job("b", 2, seconds=60000))
        await world.submit(train_job("c", 4, seconds=60000))
        await world.until(lambda: all(world.row(name) for name in "abc"), within=600)
        wanted = {}
        for _ in range(8):
            name, target = chance.choice("abc"), chance.choice(["team", "other", "third"])
            if chance.random() < 0.3:
                world.ask(name, Wish.REPRIORITISE, priorityClass="high")
            elif chance.random() < 0.2:
                world.ask(name, Wish.EVICT)
            else:
                world.ask(name, Wish.MOVE, queue=target, force=chance.random() < 0.3)
            await world.clock.advance(chance.uniform(0, 0.3))
            if chance.random() < 0.7:
                await world.restart(after=chance.uniform(0, 20))
            sound(world)
        faults.active = False
        for name in "abc":
            done = lambda name=name: not store.pending_instructions() and not world.known_row(name).relabels  # noqa: E731
            await world.until(done, f"carried out: {name}", within=600)
        for name in "abc":
            row = world.known_row(name)
            wanted = {QUEUE: row.local_queue, **({PRIORITY: row.priority_class} if row.priority_class else {})}
            assert labels(world, name) == wanted
            assert row.queue == row.local_queue
            if row.admission is not None and row.state is not State.DRAINING:
                assert row.admission.admission.queue == row.queue
        sound(world)
