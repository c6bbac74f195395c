"""Takes the names of workloads that the caller may not see out of what is said of others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..context import Context

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
"""What reads like namespace/name."""
SOMEBODY = "(a workload that you may not see)"


class Veil:
    """What is hidden from the caller, of the names in some texts."""

    def __init__(self, context: Context, texts: Iterable[str]) -> None:
        visible = None if context.sees_all else context.access.visible_queues()
        names = {name for text in texts for name in NAME.findall(text)} if visible is not None else set()
        self._hidden = context.store.access.hidden_names(names, visible or ()) if names else frozenset()

    def hides(self, name: str) -> bool:
        """Whether a `namespace/name` is of a hidden workload."""
        return name in self._hidden

    def text(self, text: str) -> str:
        """The text without names of hidden workloads."""
        if not self._hidden:
            return text
        return NAME.sub(lambda match: SOMEBODY if match[0] in self._hidden else match[0], text)

    def value(self, value: Any) -> Any:
        """The same for every text in JSON; of lists of names those of hidden workloads are left out."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self.value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value if not (isinstance(each, str) and self.hides(each))]
        return value


def texts_of(value: Any) -> Iterable[str]:
    """Every text in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def veiled(context: Context, value: Any) -> Any:
    """JSON without the names of workloads that the caller may not see."""
    if context.sees_all or not context.access.narrowed:
        return value
    return Veil(context, texts_of(value)).value(value)
