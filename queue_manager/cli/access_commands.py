"""The commands `tokens` and `audit`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.commanding import command
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import MOMENT, Fields, Output, Watch, fields_for

if TYPE_CHECKING:
    from queue_manager.cli.client import Client


class AuditFile(StrEnum):
    """Forms of an export."""

    NDJSON = "ndjson"
    CSV = "csv"


Reason = Annotated[str, typer.Option(help="Why, for the audit log.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]

Known = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.", autocompletion=complete.tokens)]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    tokens = typer.Typer(help="API tokens: made, listed, revoked.", no_args_is_help=True)
    command(tokens, "list")(tokens_list)
    command(tokens, "create")(tokens_create)
    command(tokens, "revoke")(tokens_revoke)
    app.add_typer(tokens, name="tokens")
    command(app)(audit)


def tokens_list(
    client: Client,
    revoked: Annotated[bool, typer.Option("--revoked", help="Also those that are revoked.")] = False,
    fields: Fields = "",
    output: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """List tokens: what they may do, until when, and when they were used last."""
    from queue_manager.cli.access import tokens
    from queue_manager.cli.watch import present

    present(client, tokens(client, revoked, fields_for(fields, output)), output, watch)


def tokens_create(
    client: Client,
    name: Name,
    role: Annotated[
        list[str],
        typer.Option(help="ROLE or ROLE=NODE: viewer, operator, queue-admin, platform-admin; repeatable."),
    ],
    expires: Annotated[str, typer.Option(help="After how long, such as 90d; else never.", show_default=False)] = "",
    reason: Reason = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a token and print it: it is shown this once."""
    from queue_manager.cli.access import create_token

    create_token(client, name, role, expires, reason, output)


def tokens_revoke(client: Client, name: Known, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """End a token at once."""
    from queue_manager.cli.access import revoke_token

    revoke_token(client, name, reason, output)


def audit(
    client: Client,
    who: Annotated[str, typer.Option(help="Who did it.", show_default=False)] = "",
    action: Annotated[str, typer.Option(help="hold, configuration.change ...", show_default=False)] = "",
    object: Annotated[
        str, typer.Option(help="Beginning of an object's name: workload/team/, Queue/nlp ...", show_default=False)
    ] = "",
    since: Annotated[str, typer.Option("--from", help=f"Not before: {MOMENT}.", show_default=False)] = "",
    until: Annotated[str, typer.Option("--to", help="Before.", show_default=False)] = "",
    sort: Annotated[str, typer.Option(help="at: the oldest first.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 100,
    fields: Fields = "",
    export: Annotated[
        AuditFile | None, typer.Option(help="Print all of it as a file of this form.", show_default=False)
    ] = None,
    output: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Search the audit log: who did what, when, from where and why."""
    from queue_manager.cli.access import audit, export_audit
    from queue_manager.cli.watch import present

    query = {"who": who, "action": action, "object": object, "since": since, "until": until}
    if export:
        export_audit(client, export.value, query)
        return
    query |= {"sort": sort, "fields": fields_for(fields, output)}
    present(client, audit(client, query, limit), output, watch)
