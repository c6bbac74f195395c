"""Tokens and the audit log on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, print_data, print_table
from queue_manager.client.types import Token, TokenScope
from queue_manager.config.human import clean, moment


def list_tokens(client: Client, revoked: bool, fields: str, form: Format) -> None:
    """Tokens that the caller may revoke."""
    found = list(client.tokens(revoked=revoked, fields=fields))
    if form is not Format.TABLE:
        print_data(found, form, (each["name"] for each in found))
        return
    rows = []
    for each in found:
        row = [
            each["name"],
            _roles(each),
            each["createdBy"],
            _time(each["expires"], "never"),
            _time(each["used"], "never"),
        ]
        rows.append([*row, _time(each["revoked"], "")] if revoked else row)
    columns = ("NAME", "ROLES", "BY", "EXPIRES", "USED") + (("REVOKED",) if revoked else ())
    print_table(columns, rows, give_way="ROLES")


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


def revoke_token(client: Client, name: str, reason: str) -> None:
    """Ends the token of this name."""
    found = next((each for each in client.tokens() if each["name"] == name), None)
    if found is None:
        raise CommandError(f"there is no token {name!r} that you may revoke", "see `queue-manager tokens list`")
    client.revoke_token(found["id"], reason=reason)
    print(f"token {clean(name)} is revoked")


def show_audit(
    client: Client, query: Mapping[str, Any], shown: Mapping[str, Any], limit: int, export: str, form: Format
) -> None:
    """Lines of the audit log that fit, or all of them as a file."""
    if export:
        for part in client.export_audit(format=export, **query):
            sys.stdout.write(part)
        return
    found = list(islice(client.audit(**query, **shown), limit or None))
    if form is not Format.TABLE:
        print_data(found, form, (str(each["id"]) for each in found))
        return
    rows = [
        [
            _time(each["at"], ""),
            each["who"],
            each["action"],
            each["object"],
            f"{each['source']} {each['address']}",
            each["reason"],
        ]
        for each in found
    ]
    print_table(("AT", "WHO", "ACTION", "OBJECT", "FROM", "REASON"), rows, give_way="REASON")
