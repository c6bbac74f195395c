"""Makes commands of functions that take a client, and maybe a job: the options for both are written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queue_manager.cli import complete
from queue_manager.cli.errors import CommandError

if TYPE_CHECKING:
    from queue_manager.cli.target import Target

Function = Callable[..., None]
SERVER: dict[str, tuple[Any, Any]] = {
    "server": (
        Annotated[
            str, typer.Option(help="URL of the API (else QM_SERVER, or a profile).", metavar="URL", show_default=False)
        ],
        "",
    ),
    "token": (Annotated[str, typer.Option(help="API token, qm_... (else QM_TOKEN).", show_default=False)], ""),
    "profile": (
        Annotated[
            str,
            typer.Option(
                help="Server of this profile (else QM_PROFILE).", show_default=False, autocompletion=complete.profiles
            ),
        ],
        "",
    ),
    "context": (
        Annotated[str, typer.Option(help="Server in the cluster of this kubectl context.", show_default=False)],
        "",
    ),
    "kubeconfig": (
        Annotated[str, typer.Option(help="kubectl's file for that.", show_default=False, metavar="FILE")],
        "",
    ),
}
"""Options that say where the server is: annotation and default."""
JOB: dict[str, tuple[Any, Any]] = {
    "workload": (
        Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The job.", autocompletion=complete.workloads)],
        inspect.Parameter.empty,
    ),
    "namespace": (
        Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.", show_default=False)],
        "",
    ),
    "kind": (
        Annotated[str, typer.Option(help="When jobs of several kinds have this name.", show_default=False)],
        "",
    ),
}
"""Argument and options that name a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as somebody has named it."""

    namespace: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def command(app: typer.Typer, name: str = "") -> Callable[[Function], Function]:
    """Adds a command. The function's parameter `client` becomes the options that say where the server is, `job` those
    that name a job; all others are typer's."""

    def add(function: Function) -> Function:
        app.command(name or function.__name__.replace("_", "-"))(_command_of(function))
        return function

    return add


def _command_of(function: Function) -> Function:
    given: dict[str, tuple[Any, Any]] = {}
    names = inspect.signature(function).parameters
    for parameter in names.values():
        if parameter.name == "job":
            given |= JOB
        elif parameter.name != "client":
            # Not `eval_str`: the client's annotation is there for type checkers only, its import takes long.
            annotation = eval(parameter.annotation, function.__globals__)
            given[parameter.name] = annotation, parameter.default
    given |= SERVER

    def run(**values: Any) -> None:
        from queue_manager.cli.target import Target, connect

        target = Target(**{option: values.pop(option) for option in SERVER})
        if "job" in names:
            workload, namespace, kind = (values.pop(option) for option in JOB)
            values["job"] = job_of(workload, namespace, kind, target)
        client = connect(target)
        from queue_manager.client.operations import NoNameError

        try:
            function(client, **values)
        except NoNameError as error:
            raise CommandError(str(error), "give the name of what is meant") from None

    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for key, (annotation, default) in given.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {key: annotation for key, (annotation, _) in given.items()}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def job_of(workload: str, namespace: str, kind: str, target: Target) -> Job:
    """The job that is meant by `NAMESPACE/NAME`, or by a name and the namespace of -n, of the profile or of kubectl's
    context."""
    first, slash, name = workload.partition("/")
    if not slash:
        from queue_manager.cli.target import default_namespace

        first, name = namespace or default_namespace(target), workload
    elif namespace and namespace != first:
        raise CommandError(f"{workload!r} is not in namespace {namespace!r}", "leave out one of both")
    if not first or not name or "/" in name or {first, name} & {".", ".."}:
        raise CommandError(
            f"{workload!r} is not the name of a workload", "write it like namespace/name, or give -n NAMESPACE"
        )
    return Job(first, name, kind)
