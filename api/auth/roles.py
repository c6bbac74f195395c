"""Roles, and where they hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What somebody may do in a subtree; each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    QUEUE_ADMIN = 3
    PLATFORM_ADMIN = 4

    @property
    def word(self) -> str:
        """As it stands in a RoleBinding."""
        return self.name.lower().replace("_", "-")


ROLES = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in the subtree of a node, given by name or path; an empty node is the whole tree. With `kind` only a
    node of this kind and name is meant."""

    role: Role
    node: str = ""
    kind: str = ""
