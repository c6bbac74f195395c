"""Many rows as one JSON parameter: SQL fragments for `jsonb_to_recordset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rowset:
    """Columns that a statement writes, each with its SQL type. The rows come as the parameter `rows`, JSON text."""

    columns: Mapping[str, str]

    @property
    def source(self) -> str:
        """A FROM item named `r`."""
        typed = ", ".join(f'"{name}" {kind}' for name, kind in self.columns.items())
        return f"jsonb_to_recordset(CAST(:rows AS jsonb)) AS r ({typed})"

    def names(self, prefix: str = "", *, without: tuple[str, ...] = ()) -> str:
        """The quoted column names, comma separated."""
        return ", ".join(f'{prefix}"{name}"' for name in self.columns if name not in without)

    def assignments(self, source: str = "r.", *, without: tuple[str, ...] = ()) -> str:
        """`"a" = r."a", ...` for an UPDATE."""
        return ", ".join(f'"{name}" = {source}"{name}"' for name in self.columns if name not in without)
