"""Commands of ours in processes forked from one that has imported the product before.

Importing takes two thirds of what a start of controller and webhook takes, for each test. The rest is the same as with
`python -m queue_manager.cli.main`: a process and a session of its own, its own log, environment and signals.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess

import queue_manager.cli.in_cluster  # noqa: F401  what both commands import once they run
from queue_manager.cli.main import main


def start(arguments: Sequence[str], log: str, environment: Mapping[str, str]) -> ForkServerProcess:
    """Starts `queue-manager` with these arguments; its output is appended to the log."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_run, args=(list(arguments), log, dict(environment)))
    process.start()
    return process


def _run(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["queue-manager", *arguments]
    main()
