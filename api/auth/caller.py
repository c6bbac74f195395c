"""Who asks, as the authentication has found out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from .identity import NOBODY, Identity


def caller_of(request: Request) -> Identity:
    """Who asks."""
    caller: Identity = getattr(request.state, "caller", NOBODY)
    return caller


async def get_caller(request: Request) -> Identity:
    """The same as a dependency; what waits for nothing needs no thread."""
    return caller_of(request)


Caller = Annotated[Identity, Depends(get_caller)]
