"""Certificates, registration and the TLS context stay in step over years."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_manager.cluster.port import MUTATING_WEBHOOKS, ApiError
from queue_manager.webhook.certificate_stores import SecretStore
from queue_manager.webhook.registration import NAME, Service, register
from queue_manager.webhook.tls import Tls
from queue_manager.webhook.upkeep import Upkeep
from tests.webhook.fakes import FakeCluster


class VirtualClock:
    """Time that passes only by sleeping; ends the endless loop after a number of sleeps."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 29, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self):
        return self.time

    def monotonic(self):
        return self.time.timestamp()

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += timedelta(seconds=seconds)
        if len(self.slept) > 20:
            raise InterruptedError


@pytest.fixture
def parts():
    cluster, clock, tls, events = FakeCluster(), VirtualClock(), Tls(), []

    class RecordingTls(Tls):
        def load(self, certificates):
            changed = super().load(certificates)
            if changed:
                events.append(("serve", certificates.authority))
            return changed

    async def publish(bundle):
        changed = await register(cluster.port, Service("queue-manager"), bundle)
        if changed:
            events.append(("publish", bundle))
        return changed

    tls = RecordingTls()
    upkeep = Upkeep(SecretStore(cluster.port, "queue-manager"), ["localhost"], tls, publish, clock)
    return cluster, clock, upkeep, events


async def test_first_serves_then_registers(parts):
    _, _, upkeep, events = parts
    await upkeep.once()
    await upkeep.once()
    assert [event for event, _ in events] == ["serve", "publish"]


async def test_new_authority_is_published_before_it_is_served(parts):
    _, clock, upkeep, events = parts
    await upkeep.once()
    first = events[0][1]
    events.clear()
    clock.time += timedelta(days=740)
    await upkeep.once()
    assert [event for event, _ in events] == ["publish", "serve"]
    assert events[0][1] == events[1][1] + first
    assert events[1][1] != first


async def test_renewal_under_the_same_authority_needs_no_registration(parts):
    _, clock, upkeep, events = parts
    await upkeep.once()
    events.clear()
    clock.time += timedelta(days=61)
    await upkeep.once()
    assert [event for event, _ in events] == ["serve"]


async def test_registration_taken_away_comes_back(parts):
    cluster, _, upkeep, _ = parts
    await upkeep.once()
    await cluster.delete(MUTATING_WEBHOOKS, "", NAME)
    await upkeep.once()
    assert (MUTATING_WEBHOOKS.plural, "", NAME) in cluster.objects


async def test_failures_are_tried_again(parts):
    cluster, clock, upkeep, _ = parts

    async def refused(*arguments):
        raise ApiError(503, "ServiceUnavailable", "later")

    cluster.create = refused
    with pytest.raises(InterruptedError):
        await upkeep.run()
    assert set(clock.slept) == {5.0}
    del cluster.create
    clock.slept.clear()
    with pytest.raises(InterruptedError):
        await upkeep.run()
    assert 60.0 in clock.slept
