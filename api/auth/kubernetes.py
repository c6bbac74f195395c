"""Kubernetes' own tokens (service accounts, and whatever the API server accepts): the API server is asked whose they
are by a TokenReview. What it said is kept for a moment."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from queue_manager.cluster.credentials import CredentialsError
from queue_manager.cluster.port import TOKEN_REVIEWS, ApiError, Cluster

from ..buckets import Buckets
from ..shared import Shared
from .authentication import RefusedError, TooManyError, UnavailableError
from .identity import EVERYBODY, Identity, Source, is_ours

KEPT = 10.0
"""Seconds that an answer counts: so long a token outlives its end at most."""
MOST = 1000
"""Answers that are kept, those about good tokens and those about bad ones apart: no flood of bad ones drives out the
good."""
KNOWN = 10_000
"""Tokens that were good once and may be asked about however many bad ones come from the same address."""
UNKNOWN_AT_ONCE = 20
UNKNOWN_A_SECOND = 1
"""Tokens that turn out to be bad, or to be new: so many of one address are asked about."""

K = TypeVar("K")
V = TypeVar("V")


class KubernetesVerifier:
    """Tokens that an API server knows. With an `audience` only those that are made for it."""

    def __init__(
        self,
        cluster: Cluster,
        audience: str = "",
        monotonic: Callable[[], float] = time.monotonic,
        buckets: Buckets | Shared | None = None,
    ) -> None:
        """Processes of a server that share `buckets` ask about unknown tokens of an address as one."""
        self._cluster = cluster
        self._audience = audience
        self._monotonic = monotonic
        self._accepted: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._buckets = buckets or Buckets()
        self._asking: dict[bytes, asyncio.Future[Identity | str]] = {}

    def takes(self, credential: str) -> bool:
        """The API server knows tokens of many kinds, so it is asked about all that nobody else takes."""
        return True

    async def verify(self, credential: str, address: str = "") -> Identity:
        """Whose it is."""
        place, now = hashlib.sha256(credential.encode()).digest(), self._monotonic()
        accepted = self._accepted.get(place)
        if accepted is not None and now < accepted[0]:
            return accepted[1]
        refused = self._refused.get(place)
        if refused is not None and now < refused[0]:
            raise RefusedError(refused[1])
        found = await self._ask_once(place, credential, address)
        if isinstance(found, str):
            raise RefusedError(found)
        return found

    async def _ask_once(self, place: bytes, credential: str, address: str) -> Identity | str:
        """Requests with one token at the same time wait for one answer."""
        asking = self._asking.get(place)
        if asking is None:
            drawn_on = b"" if place in self._known else self._drawn_on(address)
            asking = asyncio.ensure_future(self._ask(place, credential, drawn_on))
            self._asking[place] = asking
            asking.add_done_callback(lambda _: self._asking.pop(place, None))
        return await asyncio.shield(asking)

    async def _ask(self, place: bytes, credential: str, drawn_on: bytes) -> Identity | str:
        found = await self._review(credential)
        until = self._monotonic() + KEPT
        if isinstance(found, str):
            self._accepted.pop(place, None)
            _keep(self._refused, place, (until, found), MOST)
            return found
        if drawn_on:
            self._buckets.give_back(drawn_on, UNKNOWN_AT_ONCE)
        _keep(self._accepted, place, (until, found), MOST)
        _keep(self._known, place, None, KNOWN)
        return found

    def _drawn_on(self, address: str) -> bytes:
        """Name of the bucket of an address, with one taken out."""
        who = f"unknown tokens of {address}".encode()
        if self._buckets.take(who, UNKNOWN_A_SECOND, UNKNOWN_AT_ONCE, self._monotonic()):
            raise TooManyError("too many tokens that nobody knows came from this address; try again in a moment")
        return who

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
        name, groups = user.get("username"), user.get("groups") or ()
        if not name:
            return "the Kubernetes API server names no user"
        if any(is_ours(each) for each in (name, *groups)):
            return "its name or a group of it is one that this server gives itself (local, queue-manager, token:...)"
        return Identity(name, frozenset({*groups, EVERYBODY}), Source.KUBERNETES)

    async def close(self) -> None:
        """Ends the connections to the API server."""
        await self._cluster.close()


def _keep(kept: OrderedDict[K, V], place: K, value: V, most: int) -> None:
    """Keeps a value, at the cost of what was not kept anew for longest."""
    kept[place] = value
    kept.move_to_end(place)
    while len(kept) > most:
        kept.popitem(last=False)
