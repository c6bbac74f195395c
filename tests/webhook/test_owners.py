"""Nobody watches jobs for the webhook: an owner is read when a decision asks for it."""

import json

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, TRAIN_JOBS, ApiError
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.owners import NotRead, Unwatched, reader
from queue_manager.webhook.review import Verdict
from queue_manager.webhook.rules import Rules
from tests.webhook.fakes import KINDS, TEAM_QUEUE, FakeCluster, FakeLookup, job, owner_of
from tests.webhook.test_server import review, serving

ABOVE = job("above", kind="TrainJob", labels=TEAM_QUEUE, uid="u1")
BETWEEN = job("between", kind="JobSet", owner=owner_of(ABOVE), uid="u2")
CHILD = job("child", labels=TEAM_QUEUE, owner=owner_of(BETWEEN), suspend=False)
UNWATCHED = frozenset({TRAIN_JOBS, JOB_SETS, JOBS})


class Stored(FakeCluster):
    """Some objects, and how often any was asked for."""

    def __init__(self, *objects):
        super().__init__()
        self.asked = []
        resources = {resource.kind: resource for resource in UNWATCHED}
        for obj in objects:
            self.objects[resources[obj["kind"]].plural, "ml", obj["metadata"]["name"]] = obj

    async def get(self, resource, namespace, name):
        self.asked.append(name)
        return await super().get(resource, namespace, name)


async def answer(cluster, obj, path="/mutate"):
    decisions = Decider(KINDS, Unwatched(FakeLookup(), UNWATCHED), Rules())
    async with serving(decisions, read=reader(cluster.port)) as (client, _, _):
        return await client.review(path, review(obj))


async def test_owners_are_read_up_to_the_managed_one():
    cluster = Stored(ABOVE, BETWEEN)
    assert "patch" not in await answer(cluster, CHILD)
    assert cluster.asked == ["between", "above"]


@pytest.mark.parametrize("there", [(), ({**BETWEEN, "metadata": {**BETWEEN["metadata"], "uid": "another"}},)])
async def test_a_person_cannot_invent_an_owner(there):
    cluster = Stored(*there)
    assert "patch" in await answer(cluster, CHILD)
    assert cluster.asked == ["between"]


async def test_jobs_without_an_owner_are_decided_without_a_request():
    cluster = Stored(ABOVE)
    assert "patch" in await answer(cluster, job(labels=TEAM_QUEUE))
    assert cluster.asked == []


async def test_nothing_is_allowed_where_owners_cannot_be_read():
    class Away(FakeCluster):
        async def get(self, resource, namespace, name):
            raise ApiError(0, "", "connection refused")

    decisions = Decider(KINDS, Unwatched(FakeLookup(), UNWATCHED), Rules())
    async with serving(decisions, read=reader(Away().port)) as (client, _, _):
        assert (await client.ask("POST", "/mutate", json.dumps(review(CHILD)).encode()))[0] == 500


async def test_what_was_read_and_is_asked_for_again_is_a_failure_and_no_endless_loop():
    class Forgetful:
        def mutate(self, request):
            raise NotRead((JOBS, "ml", "above"))

        def validate(self, request):
            return Verdict()

    async with serving(Forgetful()) as (client, _, _):
        assert (await client.ask("POST", "/mutate", json.dumps(review(CHILD)).encode()))[0] == 500
