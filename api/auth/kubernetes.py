"""Kubernetes' own tokens (service accounts, and whatever the API server accepts): the API server is asked whose they
are by a TokenReview. What it said is kept for a moment."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from queue_manager.cluster.credentials import CredentialsError
from queue_manager.cluster.port import TOKEN_REVIEWS, ApiError, Cluster

from .authentication import RefusedError, UnavailableError
from .identity import EVERYBODY, Identity, Source

KEPT = 10.0
"""Seconds that an answer counts: so long a token outlives its end at most."""
MOST = 1000


class KubernetesVerifier:
    """Tokens that an API server knows. With an `audience` only those that are made for it."""

    def __init__(self, cluster: Cluster, audience: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._audience = audience
        self._monotonic = monotonic
        self._kept: OrderedDict[bytes, tuple[float, Identity | str]] = OrderedDict()

    def takes(self, credential: str) -> bool:
        """The API server knows tokens of many kinds, so it is asked about all that nobody else takes."""
        return True

    async def verify(self, credential: str, address: str = "") -> Identity:
        """Whose it is."""
        place, now = hashlib.sha256(credential.encode()).digest(), self._monotonic()
        known = self._kept.get(place)
        if known is None or known[0] <= now:
            known = now + KEPT, await self._review(credential)
            self._kept[place] = known
            self._kept.move_to_end(place)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        if isinstance(known[1], str):
            raise RefusedError(known[1])
        return known[1]

    async def _review(self, credential: str) -> Identity | str:
        audiences = {"audiences": [self._audience]} if self._audience else {}
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": credential, **audiences},
        }
        try:
            status = (await self._cluster.create(TOKEN_REVIEWS, "", body)).get("status") or {}
        except (ApiError, CredentialsError) as error:
            raise UnavailableError(f"the Kubernetes API server does not say whose the token is: {error}") from None
        if not status.get("authenticated"):
            return "the Kubernetes API server does not know it"
        if self._audience and self._audience not in (status.get("audiences") or ()):
            return f"it is not made for the audience {self._audience!r}"
        user = status.get("user") or {}
        if not user.get("username"):
            return "the Kubernetes API server names no user"
        return Identity(user["username"], frozenset({*(user.get("groups") or ()), EVERYBODY}), Source.KUBERNETES)

    async def close(self) -> None:
        """Ends the connections to the API server."""
        await self._cluster.close()
