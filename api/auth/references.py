"""What an object may name, for those from whom the rest of the tree is hidden: what they do not see is as unknown as
what is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queue_manager.config.models import ConfigObject
from queue_manager.config.problem import Problem
from queue_manager.config.tree import build_tree
from queue_manager.config.validate import unknown_parents, validate

from .access import Access
from .hidden import outer

if TYPE_CHECKING:
    from ..context import Loaded

UNKNOWN = "unknown "
"""What the messages of such problems begin with."""


def as_seen(
    access: Access, loaded: Loaded, changed: Sequence[ConfigObject], problems: Sequence[Problem]
) -> list[Problem]:
    """The problems of a change with those names unknown that its author does not see, and hints from what they see."""
    if not access.narrowed:
        return list(problems)
    around = outer(access)
    seen = {
        item.key: item
        for item in loaded.objects
        if access.sees_object(item) or (item.kind == "Cohort" and item.name in around)
    }
    before = build_tree(list(seen.values()))
    seen.update((item.key, item) for item in changed)
    world = list(seen.values())
    mine = {(item.kind, _full_name(item)) for item in changed}
    found = [*validate(world), *unknown_parents(changed, world, (), (), before)]
    unknown = [each for each in found if each.message.startswith(UNKNOWN) and (each.kind, each.name) in mine]
    return [each for each in problems if not each.message.startswith(UNKNOWN)] + unknown


def _full_name(item: ConfigObject) -> str:
    namespace = item.metadata.namespace
    return f"{namespace}/{item.name}" if namespace else item.name
