"""Who reads a stream: whether they still may, and what they may see, as of now and not as of its beginning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from ..auth.authentication import Proof, RefusedError, UnavailableError
from ..auth.veil import Veil, texts_of
from ..context import Context
from ..problems import ProblemError

log = structlog.get_logger(__name__)

UNPROVEN = 60.0
"""Seconds that a stream goes on while nobody can say whose its proof is: the provider or the database is away."""


class Reader:
    """The reader of one stream of some queues."""

    def __init__(
        self,
        context: Context,
        proof: Proof,
        queue: str = "",
        cohort: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._proof = context, proof
        self._queue, self._cohort = queue, cohort
        self._monotonic = monotonic
        self._proven_at = monotonic()

    def queues(self) -> frozenset[str] | None:
        """Queues whose events are theirs to read now, None for all."""
        try:
            names = self._context.queue_names(self._queue, self._cohort)
        except ProblemError:
            return frozenset()  # the cohort is gone
        return None if names is None else frozenset(names)

    def veiled(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is told of an action: the names in its reason and arguments that they may not see are left out."""
        said = {name: body[name] for name in ("who", "reason", "arguments") if name in body}
        veil = Veil(self._context, texts_of(said))
        return {**body, **{name: veil.value(value) for name, value in said.items()}}

    async def may_go_on(self) -> bool:
        """Whether the proof still counts, and some role is left."""
        try:
            self._context = self._context.asked_by(await self._proof.again())
            has_role = await run_in_threadpool(self._has_role)
        except RefusedError as error:
            return self._over(str(error))
        except (UnavailableError, SQLAlchemyError) as error:
            if self._monotonic() - self._proven_at < UNPROVEN:
                return True
            return self._over(f"nobody can say whose the token is: {error}")
        self._proven_at = self._monotonic()
        return has_role or self._over("there is no role left")

    def _has_role(self) -> bool:
        return self._context.sees_all or self._context.access.anywhere() is not None

    def _over(self, why: str) -> bool:
        caller = self._context.caller
        log.info("stream ended", who=caller.name, source=caller.source.value, address=caller.address, why=why)
        return False
