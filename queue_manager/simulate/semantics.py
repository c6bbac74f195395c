"""Whose rules decide a scenario."""

from __future__ import annotations

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
