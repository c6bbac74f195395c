"""Takes the names that the caller may not see out of what is said of others: of workloads, queues, cohorts, local
queues, namespaces and users that only the rest of the tree has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .hidden import hidden_names

if TYPE_CHECKING:
    from ..context import Context

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
"""What reads like namespace/name."""
WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._/@:]*[A-Za-z0-9])?")
"""What may be a name, or a path, or namespace/name."""
SOMEBODY = "(a workload that you may not see)"
SOMETHING = "(what you may not see)"


class Veil:
    """What is hidden from the caller, of the names in some texts."""

    def __init__(self, context: Context, texts: Iterable[str]) -> None:
        access = None if context.sees_all else context.access
        self._words: frozenset[str] = frozenset()
        self._namespaces: frozenset[str] = frozenset()
        self._workloads: frozenset[str] = frozenset()
        if access is None or not access.narrowed:
            return
        self._words, self._namespaces = hidden_names(context, access)
        names = {name for text in texts for name in NAME.findall(text)}
        if names:
            self._workloads = context.store.access.hidden_names(names, access.visible_queues() or ())

    @property
    def _hides_something(self) -> bool:
        return bool(self._words or self._namespaces or self._workloads)

    def hides(self, name: str) -> bool:
        """Whether a `namespace/name` is of a hidden workload."""
        return name in self._workloads or name.partition("/")[0] in self._namespaces

    def text(self, text: str) -> str:
        """The text without hidden names."""
        return WORD.sub(lambda match: self._word(match[0]), text) if text and self._hides_something else text

    def _word(self, word: str) -> str:
        if word in self._words or word in self._namespaces:
            return SOMETHING
        return SOMEBODY if "/" in word and self.hides(word) else word

    def value(self, value: Any) -> Any:
        """The same for every text in JSON; of lists of names those of hidden workloads are left out."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self.value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value if not (isinstance(each, str) and self.hides(each))]
        return value


TELLING = frozenset({"message", "reason", "holders", "enough", "node", "by", "who", "queue", "cohort", "parent"})
"""Names of fields that may say something of others; the rest are words of ours, flavors, resources and numbers."""


def texts_of(value: Any) -> Iterable[str]:
    """Every text in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def telling(value: Any, veil: Veil) -> Any:
    """JSON of which the fields that may say something of others are veiled."""
    if isinstance(value, dict):
        return {name: veil.value(each) if name in TELLING else telling(each, veil) for name, each in value.items()}
    return [telling(each, veil) for each in value] if isinstance(value, list) else value


def veiled(context: Context, value: Any) -> Any:
    """JSON without the names that the caller may not see."""
    if context.sees_all or not context.access.narrowed:
        return value
    return telling(value, Veil(context, texts_of(value)))
