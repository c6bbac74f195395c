"""Tokens and the audit log on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, Table, print_data
from queue_manager.cli.watch import View
from queue_manager.client.types import AuditLine, Token, TokenScope
from queue_manager.config.human import clean, moment


def tokens(client: Client, revoked: bool, fields: str) -> View:
    """Tokens that the caller may revoke."""
    columns = ("NAME", "ROLES", "BY", "EXPIRES", "USED", *(("REVOKED",) if revoked else ()))

    def row(each: Token) -> list[object]:
        times = [_time(each["expires"], "never"), _time(each["used"], "never")]
        more = [_time(each["revoked"], "")] if revoked else []
        return [each["name"], _roles(each), each["createdBy"], *times, *more]

    def table(found: list[Token]) -> Table:
        return Table(columns, [row(each) for each in found], (), "ROLES", "" if found else "no token is there")

    def read() -> list[Token]:
        return list(client.tokens(revoked=revoked, fields=fields))

    return View(read, table, lambda found: found, lambda each: str(each["name"]))


def _time(text: str | None, none: str) -> str:
    return moment(datetime.fromisoformat(text)) if text else none


def _roles(token: Token) -> str:
    return ", ".join(
        f"{scope['role']}={scope['node']}" if scope["node"] else scope["role"] for scope in token["scopes"]
    )


def create_token(client: Client, name: str, roles: Sequence[str], expires: str, reason: str, form: Format) -> None:
    """Makes a token and prints it: on a terminal with what it is, else alone."""
    scopes = [TokenScope(role=role, node=node) for role, _, node in (each.partition("=") for each in roles)]
    made = client.create_token(name, scopes, expires_in=expires or None, reason=reason)
    if form is not Format.TABLE:
        print_data(made, form, [made["name"]])
        return
    print(f"token {clean(name)} ({_roles(made)}), shown this once:", file=sys.stderr)
    print(made["token"])


def revoke_token(client: Client, name: str, reason: str, form: Format) -> None:
    """Ends the token of this name, and prints what is kept of it."""
    found = next((each for each in client.tokens() if each["name"] == name), None)
    if found is None:
        raise CommandError(f"there is no token {name!r} that you may revoke", "see `queue-manager tokens list`")
    client.revoke_token(found["id"], reason=reason)
    if form is not Format.TABLE:
        print_data(client.token(found["id"]), form, [name])
        return
    print(f"token {clean(name)} is revoked")


def export_audit(client: Client, form: str, query: Mapping[str, Any]) -> None:
    """All lines of the audit log that fit, as a file."""
    for part in client.export_audit(format=form, **query):
        sys.stdout.write(part)


def audit(client: Client, query: Mapping[str, Any], limit: int) -> View:
    """Lines of the audit log that fit."""
    columns = ("AT", "WHO", "ACTION", "OBJECT", "FROM", "REASON")

    def row(each: AuditLine) -> list[object]:
        where = f"{each['source']} {each['address']}"
        return [_time(each["at"], ""), each["who"], each["action"], each["object"], where, each["reason"]]

    def table(found: list[AuditLine]) -> Table:
        return Table(columns, [row(each) for each in found], (), "REASON", "" if found else "no line matches")

    def read() -> list[AuditLine]:
        return list(islice(client.audit(**query), limit or None))

    return View(read, table, lambda found: found, lambda each: str(each["id"]))
