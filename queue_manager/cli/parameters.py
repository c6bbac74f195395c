"""Options and arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_manager.cli.options import AuthMode
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
Host = Annotated[str, typer.Option(help="Address to listen on; without authentication on loopback only.")]
Auth = Annotated[
    AuthMode,
    typer.Option(envvar="QM_AUTH", help="Whether a proof of who asks is needed; auto: unless it listens on loopback."),
]
AllowedHost = Annotated[
    list[str],
    typer.Option(envvar="QM_ALLOWED_HOSTS", help="Host name that requests may be for; repeatable.", show_default=False),
]
OidcIssuer = Annotated[
    str, typer.Option(envvar="QM_OIDC_ISSUER", help="OpenID Connect provider.", show_default=False, metavar="URL")
]
OidcAudience = Annotated[
    str, typer.Option(envvar="QM_OIDC_AUDIENCE", help="Client id that its tokens are for.", show_default=False)
]
KubernetesAuth = Annotated[
    bool,
    typer.Option("--kubernetes-auth", envvar="QM_KUBERNETES_AUTH", help="Take Kubernetes' tokens too (TokenReview)."),
]
KubernetesAudience = Annotated[
    str,
    typer.Option(envvar="QM_KUBERNETES_AUDIENCE", help="Only those made for this audience.", show_default=False),
]
ProtectMetrics = Annotated[
    bool | None,
    typer.Option(
        "--protect-metrics/--open-metrics",
        envvar="QM_PROTECT_METRICS",
        help="Metrics need a role at the whole tree; they do where a proof is needed, unless they are opened.",
        show_default=False,
    ),
]
Fields = Annotated[
    str,
    typer.Option(help="Only these of each item, with -o json or yaml: name,podGroups.name ...", show_default=False),
]
MOMENT = "a time, 2026-11-30, 2026-11, 7d (ago), last-month"


def fields_for(fields: str, form: Format) -> str:
    """The value of --fields; bad use where the form of the answer needs other ones."""
    if fields and form not in (Format.JSON, Format.YAML):
        raise typer.BadParameter("has a meaning with -o json or -o yaml only", param_hint="--fields")
    return fields
