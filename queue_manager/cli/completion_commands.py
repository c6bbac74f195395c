"""`completion`: prints what a shell has to read to complete our commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

PROGRAMS = ("queue-manager", "qm")


class Shell(StrEnum):
    """Shells that we know."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]) -> None:
    """Print the script that makes a shell complete commands, options, jobs and queues.

    bash: source <(qm completion bash), in ~/.bashrc.
    zsh: source <(qm completion zsh), in ~/.zshrc after compinit.
    fish: qm completion fish | source, in ~/.config/fish/config.fish.
    """
    from typer._completion_shared import get_completion_script

    for program in PROGRAMS:
        variable = f"_{program}_COMPLETE".replace("-", "_").upper()
        print(get_completion_script(prog_name=program, complete_var=variable, shell=shell.value))
