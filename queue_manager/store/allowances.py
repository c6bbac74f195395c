"""What subtrees were given from above: kept from the first change by an admin of the subtree on, so that what the admin
takes away in one place may be given in another later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from queue_manager.store import codec

_LOAD = text("SELECT kind, name, cells FROM allowances ORDER BY kind, name")
_SAVE = text(
    "INSERT INTO allowances (kind, name, cells) "
    "SELECT kind, name, cells FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS t (kind text, name text, cells jsonb) "
    "ON CONFLICT (kind, name) DO UPDATE SET cells = EXCLUDED.cells"
)
_DELETE = text("DELETE FROM allowances")


@dataclass(frozen=True, slots=True)
class CellAllowance:
    """Base units. `guaranteed` is the sum of nominal quotas, `most` what may be used with what is borrowed; None is
    without limit."""

    flavor: str
    resource: str
    guaranteed: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of the subtree of a queue or cohort."""

    kind: str
    name: str
    cells: tuple[CellAllowance, ...]


def load(connection: Connection) -> list[Allowance]:
    """All that are kept."""
    return [
        Allowance(row.kind, row.name, tuple(CellAllowance(**cell) for cell in row.cells))
        for row in connection.execute(_LOAD)
    ]


def replace_all(connection: Connection, found: Sequence[Allowance]) -> None:
    """Keeps these and no others; in the transaction of the change that they belong to."""
    connection.execute(_DELETE)
    if not found:
        return
    rows = [
        {
            "kind": each.kind,
            "name": each.name,
            "cells": [
                {"flavor": c.flavor, "resource": c.resource, "guaranteed": c.guaranteed, "most": c.most}
                for c in each.cells
            ],
        }
        for each in found
    ]
    connection.execute(_SAVE, {"rows": codec.encode(rows)})
