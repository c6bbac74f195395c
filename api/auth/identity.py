"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from queue_manager.store.instructions import LEADER

from .roles import Grant, Role


class Source(StrEnum):
    """How somebody proved who they are."""

    LOOPBACK = "loopback"
    TOKEN = "token"
    OIDC = "oidc"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: `name` is what revisions and the audit log keep, `address` where the request came from.

    `scopes` are roles that come with the proof itself (a token's), beside those that RoleBindings give; `since` is when
    the proof was made, `expires` when it ends, as far as that is known.
    """

    name: str
    groups: frozenset[str] = frozenset()
    source: Source = Source.LOOPBACK
    address: str = ""
    scopes: tuple[Grant, ...] = ()
    since: datetime | None = None
    expires: datetime | None = None

    @property
    def key(self) -> str:
        """Tells this caller from all others: a name may be given by several ways, and to one token after another."""
        return f"{self.source.value} {self.name} {self.since.isoformat() if self.since else ''}".rstrip()


EVERYBODY = "system:authenticated"
"""Group of all who proved who they are by OIDC or Kubernetes."""
NOBODY = Identity("")
"""Who asks without a proof where one is needed; may use what is open to everybody."""
LOCAL = Identity("local", scopes=(Grant(Role.PLATFORM_ADMIN),))
"""Who asks without a proof, on a server that listens on loopback only: whoever can do that is on this machine."""
OURS = frozenset({LOCAL.name, LEADER})
TOKENS = "token:"
"""What names of API tokens begin with."""


def is_ours(name: str) -> bool:
    """Whether a user's or group's name is one that this server gives itself: no provider may give it, or the audit log
    and bindings would take one for the other."""
    return name in OURS or name.startswith(TOKENS)
