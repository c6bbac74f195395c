"""Options and arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_manager.cli.output import Format

Database = Annotated[
    str, typer.Option(envvar="QM_DATABASE", help="PostgreSQL URL, or embedded:DIR.", show_default=False, metavar="URL")
]
Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file; else KUBECONFIG, else in-cluster.", show_default=False, metavar="FILE")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the answer.")]
Namespace = Annotated[
    str, typer.Option(envvar="POD_NAMESPACE", help="Namespace that the program runs in.", show_default=False)
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on, and tell what changes.")]
Why = Annotated[str, typer.Option(help="Why; its user is told, and the audit log keeps it.")]
Host = Annotated[str, typer.Option(help="Address to listen on; loopback only while there is no authentication.")]
