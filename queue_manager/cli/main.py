"""The command line. Imports are inside the commands: `--help` and errors must not wait for the whole program."""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer._completion_classes import completion_init
from typer.core import TyperGroup

from queue_manager.cli import (
    access_commands,
    action_commands,
    completion_commands,
    configuration_commands,
    daily_commands,
    profile_commands,
    stop_commands,
)
from queue_manager.cli.errors import CommandError
from queue_manager.cli.options import (
    ApiOptions,
    AuthMode,
    AuthOptions,
    ClusterKind,
    ControllerOptions,
    ScenarioView,
    Semantics,
    Switch,
    UpOptions,
    WebhookOptions,
)
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import (
    AllowedHost,
    Auth,
    Database,
    Host,
    Kubeconfig,
    KubernetesAudience,
    KubernetesAuth,
    Namespace,
    OidcAudience,
    OidcIssuer,
    Output,
    ProtectMetrics,
)


class Commands(TyperGroup):
    """All commands. What is wrong with an option is said in words of ours."""

    def invoke(self, ctx: Any) -> Any:
        """Runs what was typed."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if errors := getattr(error.__cause__, "errors", None):
                from queue_manager.config.words import worded

                first = errors()[0]
                message, hint = worded(first["type"], first["input"], first.get("ctx", {}), first["msg"])
                error.message = f"{message} ({hint})" if hint else message
            raise


app = typer.Typer(
    name="queue-manager",
    cls=Commands,
    help="Batch queues for AI training on Kubernetes: quotas, whole-gang admission, topology.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would take longer to import than all the rest
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,  # `completion` prints the scripts; nothing is written into anybody's files
)
completion_init()
db = typer.Typer(help="Database: migrations and checks.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(db, name="db")


@app.command()
def up(
    cluster: Annotated[ClusterKind, typer.Option(help="What to work on.")] = ClusterKind.SIMULATED,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API and web page.")] = 8080,
    host: Host = "127.0.0.1",
    data: Annotated[str, typer.Option(help="Folder of the embedded database.", metavar="DIR", show_default=False)] = "",
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Load the demo fleet and play jobs.")] = False,
    webhook_url: Annotated[
        str, typer.Option(help="URL by which the API server reaches the webhook.", metavar="URL", show_default=False)
    ] = "",
    database: Database = "",
    kubeconfig: Kubeconfig = "",
    auth: Auth = AuthMode.AUTO,
    allowed_host: AllowedHost = (),  # type: ignore[assignment]
    oidc_issuer: OidcIssuer = "",
    oidc_audience: OidcAudience = "",
    kubernetes_auth: KubernetesAuth = False,
    kubernetes_audience: KubernetesAudience = "",
    protect_metrics: ProtectMetrics = None,
    jobs: Annotated[
        str,
        typer.Option(
            help="Submit the jobs of this file to the simulated cluster, also those added later.",
            metavar="FILE",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run everything here, with API and web page."""
    from queue_manager.cli.up import run_up

    options = AuthOptions(
        auth, tuple(allowed_host), oidc_issuer, oidc_audience, kubernetes_auth, kubernetes_audience, protect_metrics
    )
    run_up(UpOptions(cluster, host, port, data, demo, webhook_url, database, kubeconfig, options, jobs))


@app.command()
def controller(
    database: Database = "",
    kubeconfig: Kubeconfig = "",
    host: Annotated[str, typer.Option(help="Address of /metrics, /healthz and /readyz.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Their port.")] = 8081,
    namespace: Namespace = "",
    events: Annotated[
        Switch | None, typer.Option(help="Whether events are written on jobs; by default as `Settings.events` says.")
    ] = None,
) -> None:
    """Run the controller: watches the cluster, admits and evicts."""
    from queue_manager.cli.in_cluster import run_controller

    _need(database, "--database", "QM_DATABASE")
    wanted = None if events is None else events is Switch.ON
    run_controller(ControllerOptions(database, kubeconfig, host, port, namespace, wanted))


@app.command()
def api(
    database: Database = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    host: Host = "127.0.0.1",
    kubeconfig: Kubeconfig = "",
    auth: Auth = AuthMode.AUTO,
    allowed_host: AllowedHost = (),  # type: ignore[assignment]
    oidc_issuer: OidcIssuer = "",
    oidc_audience: OidcAudience = "",
    kubernetes_auth: KubernetesAuth = False,
    kubernetes_audience: KubernetesAudience = "",
    protect_metrics: ProtectMetrics = None,
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            envvar="QM_WORKERS",
            help="Processes that answer; 0: as many as there are cores, four at most.",
        ),
    ] = 0,
) -> None:
    """Run the REST API and the web page."""
    from queue_manager.cli.serve import run_api

    _need(database, "--database", "QM_DATABASE")
    options = AuthOptions(
        auth, tuple(allowed_host), oidc_issuer, oidc_audience, kubernetes_auth, kubernetes_audience, protect_metrics
    )
    run_api(ApiOptions(database, host, port, options, kubeconfig, workers))


@app.command()
def webhook(
    database: Database = "",
    kubeconfig: Kubeconfig = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8443,
    namespace: Namespace = "",
    url: Annotated[str, typer.Option(help="URL to register in place of the Service.", show_default=False)] = "",
) -> None:
    """Run the admission webhooks."""
    from queue_manager.cli.in_cluster import run_webhook

    _need(database, "--database", "QM_DATABASE")
    run_webhook(WebhookOptions(database, kubeconfig, host, port, namespace, url))


@db.command("upgrade")
def db_upgrade(
    database: Database = "",
    admin: Annotated[
        str,
        typer.Option(
            envvar="QM_DATABASE_ADMIN",
            help="URL of the role that owns the tables, if that of --database is not to.",
            show_default=False,
            metavar="URL",
        ),
    ] = "",
) -> None:
    """Bring the schema to this version."""
    from queue_manager.cli.database import upgrade

    _need(database, "--database", "QM_DATABASE")
    upgrade(database, admin)


@db.command("admin-token")
def db_admin_token(database: Database = "", name: Annotated[str, typer.Option(help="Its name.")] = "rescue") -> None:
    """Make an admin's API token by the database alone, for a server that nobody can log in to."""
    from queue_manager.cli.database import admin_token

    _need(database, "--database", "QM_DATABASE")
    admin_token(database, name)


@db.command("check")
def db_check(database: Database = "", output: Output = Format.TABLE) -> None:
    """Prove the ledger and the invariants; exit code 1 when one is broken."""
    from queue_manager.cli.database import check

    _need(database, "--database", "QM_DATABASE")
    check(database, output)


configuration_commands.register(app)


daily_commands.register(app)
action_commands.register(app)
stop_commands.register(app)
access_commands.register(app)
completion_commands.register(app)
app.add_typer(profile_commands.app, name="profile")


@app.command()
def simulate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Scenario files, or folders of *.json.")],
    semantics: Annotated[
        Semantics, typer.Option(help="Whose rules decide: the product's own policies too, or Kueue's alone.")
    ] = Semantics.OWN,
    output: Annotated[ScenarioView, typer.Option("--output", "-o", help="Form of the answer.")] = ScenarioView.JSON,
) -> None:
    """Play scenario files: who is admitted, who is evicted, and why the rest waits."""
    from queue_manager.cli.simulate import run_simulate

    if not run_simulate(paths, semantics, output):
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as of

    print(of("queue-manager"))


def _need(value: str, option: str, variable: str) -> None:
    if not value:
        raise typer.BadParameter(f"give {option}, or set {variable}", param_hint=option)


def main(program: str | None = None) -> NoReturn:
    """Entry point: exit code 0 ok, 1 failed, 2 bad use. `program` is what the help calls it."""
    try:
        app(standalone_mode=True, prog_name=program)
    except CommandError as error:
        fail(error)
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)


def fail(error: CommandError) -> NoReturn:
    """Prints the error with all its findings and ends with exit code 1."""
    from queue_manager.cli.output import finding_text, print_error

    found = getattr(error, "errors", ())
    findings = [finding_text(each) for each in found]
    # What a finding says is not said twice.
    said = [str(each["message"]) for each in found if each.get("message")]
    told = any(each in error.message for each in said) or error.message.endswith(": see errors")
    message = getattr(error, "title", "") if told else error.message
    more = getattr(error, "error_count", 0) - len(findings)
    if more > 0:
        findings.append(f"... and {more} more")
    print_error(message or error.message, error.hint, findings)
    sys.exit(1)


if __name__ == "__main__":
    main()
