"""TokenReviews: the simulated API server says whose a token is; it keeps nothing of them."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.cluster.port import ApiError, Object

Accounts = Mapping[str, tuple[str, tuple[str, ...]]]
"""Token to (user, groups)."""


def reviewed(body: Object, accounts: Accounts) -> Object:
    """The review with its status, as a real server answers; tokens here are for every audience."""
    spec = body.get("spec") or {}
    token = spec.get("token")
    if not token:
        raise ApiError(400, "BadRequest", "token is required for TokenReview in authentication")
    known = accounts.get(token)
    if known is None:
        return {**body, "status": {"user": {}, "error": "invalid bearer token"}}
    user, groups = known
    named = {"username": user, "groups": [*groups, "system:authenticated"]}
    return {**body, "status": {"authenticated": True, "user": named, "audiences": list(spec.get("audiences") or ())}}
