"""What is wrong with a configuration, said so that its author can repair it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: where (file, line, object, field path), what is wrong, and in `hint` what would be right.

    `line` is 0 where the object did not come from a file.
    """

    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    kind: str = ""
    name: str = ""
    field: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        what = f"{self.kind} {self.name}".strip()
        text = ": ".join(part for part in (place, what, self.field, self.message) if part)
        return f"{text} ({self.hint})" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """The finding as an entry of the API's `errors` list."""
        return {
            "file": self.file,
            "line": self.line,
            "kind": self.kind,
            "name": self.name,
            "field": self.field,
            "message": self.message,
            "hint": self.hint,
        }


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint with the known word that `word` was probably meant to be; "" when none is near."""
    choices = sorted(known)
    by_lower = {choice.lower(): choice for choice in reversed(choices)}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]!r}?" if found else ""


def nearest_or_list(word: str, known: Iterable[str], what: str) -> str:
    """Like `nearest`, else the list of what is known, cut to a readable length."""
    choices = sorted(known)
    hint = nearest(word, choices)
    if hint:
        return hint
    if not choices:
        return f"there is no {what} yet"
    shown = ", ".join(choices[:12])
    return f"known: {shown}" + (f" and {len(choices) - 12} more" if len(choices) > 12 else "")
