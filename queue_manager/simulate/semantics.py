"""Whose rules decide a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum

from queue_manager.engine.configuration import Policies

KUEUE_POLICIES = Policies(**{policy.name: not policy.default for policy in fields(Policies)})
"""Every rule of our own off, Kueue's own on: a policy is one or the other, and its default is the product's."""


class Semantics(StrEnum):
    """Value of `--semantics`: the product's own policies, or Kueue's alone."""

    OWN = "own"
    KUEUE = "kueue"

    @property
    def policies(self) -> Policies:
        """The engine's policies under these semantics."""
        return KUEUE_POLICIES if self is Semantics.KUEUE else Policies()

    def heeds(self, gates: Mapping[str, object], *names: str) -> bool:
        """Whether something of Kueue's that is off by default counts: here always, by Kueue's rules where one of the
        feature gates is on."""
        return self is Semantics.OWN or any(gates.get(name) is True for name in names)
