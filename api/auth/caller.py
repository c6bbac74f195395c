"""Who asks, as the authentication has found out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from .identity import NOBODY, Identity


def get_caller(request: Request) -> Identity:
    """Who asks."""
    caller: Identity = getattr(request.state, "caller", NOBODY)
    return caller


Caller = Annotated[Identity, Depends(get_caller)]
