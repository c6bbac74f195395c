"""Who leads: a lease row in the database whose epoch fences every commit; in a cluster a Kubernetes Lease beside it."""

from __future__ import annotations

from datetime import datetime, timedelta

from queue_manager.cluster.clock import Clock, parse_rfc3339, rfc3339_micro
from queue_manager.cluster.port import LEASES, ApiError, Cluster, Object, PatchType
from queue_manager.controller.in_thread import InThread
from queue_manager.store.store import Store

LEASE = "controller"
TTL = timedelta(seconds=10)
RENEW = 3.0
"""Seconds between renewals."""


class DatabaseLease:
    """The lease that counts: its epoch grows with every change of holder."""

    def __init__(
        self,
        store: Store,
        holder: str,
        clock: Clock,
        in_thread: InThread,
        ttl: timedelta = TTL,
        virtual: bool = False,
    ) -> None:
        self._store, self._holder, self._clock, self._in_thread, self._ttl = store, holder, clock, in_thread, ttl
        self._virtual = virtual
        self._until = 0.0
        self.epoch = 0

    @property
    def valid(self) -> bool:
        """Whether we may still act as the leader, by our own clock and with a margin."""
        return bool(self.epoch) and self._clock.monotonic() < self._until

    def _now(self) -> datetime | None:
        """None lets the database tell the time: the clocks of several machines differ."""
        return self._clock.now() if self._virtual else None

    async def acquire(self) -> bool:
        """Takes the lease if it is free or ours."""
        started = self._clock.monotonic()
        epoch = await self._in_thread(self._store.acquire_lease, LEASE, self._holder, self._ttl, self._now())
        self.epoch = epoch or 0
        self._until = started + self._ttl.total_seconds() * 0.8
        return bool(epoch)

    async def renew(self) -> bool:
        """Prolongs it; False when somebody else has it."""
        started = self._clock.monotonic()
        if not await self._in_thread(self._store.renew_lease, LEASE, self._holder, self.epoch, self._ttl, self._now()):
            self.epoch = 0
            return False
        self._until = started + self._ttl.total_seconds() * 0.8
        return True

    async def give_up(self) -> None:
        """Lets the next one lead at once."""
        if self.epoch:
            await self._in_thread(self._store.release_lease, LEASE, self._holder, self.epoch)
            self.epoch = 0


class KubernetesLease:
    """`coordination.k8s.io` Lease: shows people who leads, and keeps two releases with different databases apart."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, holder: str, clock: Clock, ttl: timedelta = TTL
    ) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._holder, self._clock, self._ttl = holder, clock, ttl

    async def acquire(self) -> bool:
        """Takes or prolongs the Lease; False while another holder's is valid."""
        taken = await self._acquire()
        # Somebody wrote between our read and our write, which need not be another holder: once more.
        return await self._acquire() is True if taken is None else taken

    async def _acquire(self) -> bool | None:
        """None when the Lease changed meanwhile."""
        now = self._clock.now()
        try:
            lease = await self._cluster.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if not error.not_found:
                raise
            return await self._create(now)
        spec = lease.get("spec") or {}
        renewed = spec.get("renewTime")
        expired = not renewed or parse_rfc3339(renewed) + timedelta(seconds=spec.get("leaseDurationSeconds", 0)) < now
        if spec.get("holderIdentity") not in (self._holder, "", None) and not expired:
            return False
        body: Object = {
            "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
            "spec": self._spec(now, spec.get("leaseTransitions", 0) + (spec.get("holderIdentity") != self._holder)),
        }
        try:
            await self._cluster.patch(LEASES, self._namespace, self._name, body, PatchType.MERGE)
        except ApiError as error:
            if error.conflict:
                return None
            raise
        return True

    async def _create(self, now: datetime) -> bool | None:
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(now, 0),
        }
        try:
            await self._cluster.create(LEASES, self._namespace, body)
        except ApiError as error:
            if error.conflict:
                return None
            raise
        return True

    def _spec(self, now: datetime, transitions: int) -> Object:
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(self._ttl.total_seconds()),
            "renewTime": rfc3339_micro(now),
            "leaseTransitions": transitions,
        }

    async def give_up(self) -> None:
        """Lets the next one lead at once. A Lease that somebody else has taken stays theirs."""
        lease = await self._cluster.get(LEASES, self._namespace, self._name)
        if (lease.get("spec") or {}).get("holderIdentity") != self._holder:
            return
        body: Object = {
            "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        }
        await self._cluster.patch(LEASES, self._namespace, self._name, body, PatchType.MERGE)
