"""`kubectl qm`: kubectl runs the program `kubectl-qm` with what stands behind `qm`."""

from __future__ import annotations

from typing import NoReturn

from queue_manager.cli.main import main as run
from queue_manager.cli.target import Plugin


def main() -> NoReturn:
    """The same commands; where no server is named they ask the API in the cluster of kubectl's context."""
    Plugin.active = True
    run("kubectl qm")


if __name__ == "__main__":
    main()
