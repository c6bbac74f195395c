"""The whole role: it serves, registers, follows the configuration, and stops in order."""

import asyncio
import base64

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.port import MUTATING_WEBHOOKS
from queue_manager.webhook.certificate_stores import FolderStore
from queue_manager.webhook.registration import NAME, Selection, Url
from queue_manager.webhook.run import Options, run_webhook
from tests.webhook.fakes import CATALOGUE, KINDS, OURSELVES, TEAM_QUEUE, FakeCluster, FakeLookup, job
from tests.webhook.test_server import Client, review


async def wait_for(condition, seconds=10.0):
    for _ in range(int(seconds * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


@pytest.fixture
async def role(tmp_path):
    """Starts the role on a free port; gives the fake cluster, the port and what steers it."""
    cluster, ports, state = FakeCluster(), [], {"ready": False}
    options = Options(
        names=("localhost", "127.0.0.1"),
        host="127.0.0.1",
        port=0,
        target=lambda port: Url(f"https://127.0.0.1:{port}"),
        selection=Selection(identities=(OURSELVES,)),
        leave_registered=False,
    )

    running = run_webhook(
        cluster.port,
        KINDS,
        FakeLookup(),
        FolderStore(tmp_path),
        lambda: CATALOGUE,
        SystemClock(),
        options,
        ready=lambda: state["ready"],
        started=ports.append,
    )
    task = asyncio.create_task(running)
    await wait_for(lambda: ports and (tmp_path / "tls.crt").exists())
    yield cluster, ports[0], state, task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def registered(cluster):
    return (MUTATING_WEBHOOKS.plural, "", NAME) in cluster.objects


async def test_registers_once_it_can_answer_and_unregisters_when_it_stops(role):
    cluster, port, state, task = role
    await asyncio.sleep(0.3)
    assert not registered(cluster)
    state["ready"] = True
    await wait_for(lambda: registered(cluster))
    entry = cluster.objects[MUTATING_WEBHOOKS.plural, "", NAME]["webhooks"][0]
    client = Client(port, base64.b64decode(entry["clientConfig"]["caBundle"]))
    assert entry["clientConfig"]["url"] == f"https://127.0.0.1:{port}/mutate"
    assert (await client.ask("GET", "/readyz"))[0] == 200
    assert (await client.review("/mutate", review(job(labels=TEAM_QUEUE))))["patch"]
    unknown = review(job(labels={"queue-manager.io/queue": "teem"}))
    assert "did you mean 'team'?" in (await client.review("/validate", unknown))["warnings"][0]
    task.cancel()
    await asyncio.wait([task])
    assert not registered(cluster)
    with pytest.raises(ConnectionRefusedError):
        await client.ask("GET", "/healthz")
