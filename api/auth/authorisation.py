"""Whether the caller may use a route: a dependency of every one, decided by `decisions.DECISIONS`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ..problems import ProblemError
from .decisions import Need
from .identity import LOCAL, Identity


def get_caller(request: Request) -> Identity:
    """Who asks."""
    caller: Identity = getattr(request.state, "caller", LOCAL)
    return caller


Caller = Annotated[Identity, Depends(get_caller)]


def authorise(request: Request) -> None:
    """403 unless the caller has what the route needs, and where nobody decided what that is."""
    need: Need | None = request.app.state.needs.get((request.method, request.scope["endpoint"]))
    if need is None:
        raise ProblemError(403, "Forbidden", "nobody has decided who may use this route")
