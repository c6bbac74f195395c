"""`profile`: servers by names of one's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from queue_manager.cli import complete
from queue_manager.cli.output import Format
from queue_manager.cli.parameters import Output

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=complete.profiles)]
app = typer.Typer(help="Servers by names of your own, with their tokens.", no_args_is_help=True, rich_markup_mode=None)


@app.command("set")
def set_profile(
    name: Name,
    server: Annotated[str | None, typer.Option(help="URL of the API.", metavar="URL", show_default=False)] = None,
    token: Annotated[
        str | None,
        typer.Option(help="API token; - reads it from the input, and from nowhere else.", show_default=False),
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(help="Certificates to trust, besides none.", metavar="FILE", show_default=False)
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Instead of a URL: kubectl's context of the cluster.", show_default=False)
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="kubectl's file for that.", metavar="FILE", show_default=False)
    ] = None,
    api_namespace: Annotated[
        str | None, typer.Option(help="Namespace that the API runs in there.", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Of jobs that are named without one.", show_default=False)
    ] = None,
) -> None:
    """Make a profile, or change what is given of it. The first one is the current one."""
    from queue_manager.cli import profiles
    from queue_manager.cli.profiles import Profile
    from queue_manager.cli.target import connect_to

    known = profiles.load()
    given = {
        "server": server,
        "token": _token() if token == "-" else token,
        "ca_file": ca_file,
        "context": context,
        "kubeconfig": kubeconfig,
        "api_namespace": api_namespace,
        "namespace": namespace,
    }
    profile = replace(
        known.named.get(name, Profile()), **{key: value for key, value in given.items() if value is not None}
    )
    if bool(profile.server) == bool(profile.context):
        raise typer.BadParameter("give either --server URL or --context NAME", param_hint="--server")
    if profile.server:
        connect_to(profile).close()  # says what is wrong with the URL, the token or the certificates
    profiles.save(known.with_profile(name, profile))


def _token() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    return getpass("token: ").strip()


@app.command("list")
def list_profiles(output: Output = Format.TABLE) -> None:
    """List the profiles; tokens are not shown."""
    from queue_manager.cli import profiles
    from queue_manager.cli.output import Table, colours, print_data, terminal_width

    known = profiles.load()
    items = [
        {
            "name": name,
            "current": name == known.current,
            "server": profile.server,
            "context": profile.context,
            "namespace": profile.namespace,
            "token": bool(profile.token),
        }
        for name, profile in sorted(known.named.items())
    ]
    if output is not Format.TABLE:
        print_data({"items": items}, output, known.named)
        return
    rows = [
        [
            "*" if item["current"] else "",
            item["name"],
            item["server"] or f"context {item['context']}",
            item["namespace"],
            "yes" if item["token"] else "",
        ]
        for item in items
    ]
    for line in Table(("", "PROFILE", "SERVER", "NAMESPACE", "TOKEN"), rows, give_way="SERVER").lines(
        terminal_width(), colours()
    ):
        print(line)


@app.command()
def use(name: Name) -> None:
    """Make a profile the current one."""
    from queue_manager.cli import profiles

    profiles.save(profiles.load().using(name))


@app.command()
def remove(name: Name) -> None:
    """Forget a profile with its token."""
    from queue_manager.cli import profiles

    profiles.save(profiles.load().without(name))
