"""Keeps the webhook callable: certificates renewed, their authority published, the server's TLS context up to date."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence

import structlog

from queue_manager.cluster.clock import Clock
from queue_manager.cluster.port import ApiError
from queue_manager.webhook.certificates import Certificates, CertificateStore, Conflict, ensure_certificates
from queue_manager.webhook.tls import Tls

EVERY = 60.0
"""Seconds between two looks; a registration that somebody took away is back after that."""

SOON = 1.0
"""Seconds after which a registration that has to say something else does so."""

AFTER_FAILURE = 5.0
SETTLE = 2.0
"""Seconds that API servers get to notice a new CA bundle before a certificate that needs it is served."""

log = structlog.get_logger(__name__)

Publish = Callable[[bytes], Awaitable[bool]]
"""Gives the API server a CA bundle; returns whether it was new (registration.register bound to its target)."""


class Upkeep:
    """The loop of one webhook process; any number of them may share a store. `wanted` answers what beside the bundle is
    registered; when that changes it is published at once."""

    def __init__(
        self,
        store: CertificateStore,
        names: Sequence[str],
        tls: Tls,
        publish: Publish | None,
        clock: Clock,
        wanted: Callable[[], object] | None = None,
    ) -> None:
        self._store = store
        self._names = tuple(names)
        self._tls = tls
        self._publish = publish
        self._clock = clock
        self._wanted = wanted
        self._authority = b""

    async def once(self) -> None:
        """One look. Raises ApiError, Conflict, OSError or ssl.SSLError when something is not as it should be."""
        certificates = await ensure_certificates(self._store, self._clock.now(), self._names)
        if not self._tls.loaded or certificates.authority == self._authority:
            # No API server needs a new bundle for this one (or nobody could connect so far, and a registration should
            # never point to a deaf port).
            self._serve(certificates)
        if self._publish is not None and await self._publish(certificates.bundle):
            log.info("webhooks registered")
            await self._clock.sleep(SETTLE)
        self._serve(certificates)

    def _serve(self, certificates: Certificates) -> None:
        if self._tls.load(certificates):
            log.info("serving with a new certificate")
        self._authority = certificates.authority

    async def run(self) -> None:
        """Looks for ever; failures are logged and tried again soon."""
        while True:
            published = self._wanted() if self._wanted else None
            try:
                await self.once()
                pause = EVERY
            except (ApiError, Conflict, OSError, ssl.SSLError) as error:
                log.warning("the webhook's certificate or registration needs care", error=str(error))
                pause = AFTER_FAILURE
            await self._pause(pause, published)

    async def _pause(self, seconds: float, published: object) -> None:
        if self._wanted is None:
            await self._clock.sleep(seconds)
            return
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until and self._wanted() == published:
            await self._clock.sleep(SOON)
