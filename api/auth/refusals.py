"""Takes out of problem documents what the caller may not see: objects that they name, and names that they suggest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from queue_manager.config.tree import Node

from ..problems import ProblemError
from .caller import caller_of

if TYPE_CHECKING:
    from ..context import Context

_HINT = re.compile(r"(?:; )?\b(?:did you mean '|known: ).*$", re.DOTALL)
"""What `nearest_or_list` says, at the end of a text."""
_WORD = re.compile(r"[^\s,;'?]+")


def veiled_problem(request: Request, error: ProblemError) -> ProblemError:
    """The problem as its reader may see it."""
    if not error.errors and not _HINT.search(error.detail):
        return error
    context: Context = request.app.state.context.asked_by(caller_of(request))
    if context.sees_all:
        return error
    try:
        hidden = _Hidden(context)
    except SQLAlchemyError:  # what is hidden is not known: nothing is suggested then
        return ProblemError(error.status, error.title, _HINT.sub("", error.detail), headers=error.headers)
    return hidden.problem(error) if hidden.names else error


class _Hidden:
    """`objects` are (kind, [namespace/]name), `names` all words that mean one of them."""

    def __init__(self, context: Context) -> None:
        loaded = context.configuration()
        access = context.access_by(loaded)
        self.objects: set[tuple[str, str]] = set()
        self.names: set[str] = set()
        if not access.narrowed:
            return
        shown: set[str] = set()
        for node in loaded.compiled.tree.nodes():
            if access.sees((node.kind, node.name)):
                shown |= _names(node)
            else:
                self.objects.add((node.kind, node.name))
                self.names |= _names(node)
        for item in loaded.objects:
            if not access.sees_object(item):
                namespace, name = item.metadata.namespace, item.name
                self.objects.add((item.kind, f"{namespace}/{name}" if namespace else name))
                self.names.add(name)
        self.names -= shown

    def problem(self, error: ProblemError) -> ProblemError:
        """Without what is hidden; how much that is, is said."""
        seen = [each for each in error.errors if (each.get("kind"), each.get("name")) not in self.objects]
        errors: list[Mapping[str, Any]] = [
            {name: self._text(value) if isinstance(value, str) else value for name, value in each.items()}
            for each in seen
        ]
        if more := len(error.errors) - len(seen):
            errors.append({"message": f"{more} more, about what you may not see (a name may be taken there)"})
        return ProblemError(error.status, error.title, self._text(error.detail), errors=errors, headers=error.headers)

    def _text(self, text: str) -> str:
        found = _HINT.search(text)
        if found is None or self.names.isdisjoint(_WORD.findall(found[0])):
            return text
        return text[: found.start()]


def _names(node: Node) -> set[str]:
    return {node.name, node.path}
