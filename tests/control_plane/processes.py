"""Child processes of a test control plane: started, watched while they become ready, and always stopped."""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOG_TAIL_LINES = 30
POLL_SECONDS = 0.02

# Runs in a child: asks the kernel to kill it when its parent dies, then becomes the program. (A preexec_fn would do
# the same, but forking a process that has threads is what Python warns of.)
_LAUNCHER = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
if os.getppid() != parent:
    sys.exit("the parent died before this process started")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ControlPlaneError(RuntimeError):
    """A part of the control plane ended or didn't become ready; the message has the end of its log."""


class Process:
    """A running child with its log file.

    It is killed when the thread that started it ends, however that happens: start it from a thread that lives as
    long as the control plane (pytest's main thread does).
    """

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts the command; its output goes to ``log``. Raises: FileNotFoundError when there is no such program."""
        if not Path(command[0]).exists():
            raise FileNotFoundError(f"no program {command[0]} for {name}")
        self.name = name
        self.log = log
        arguments = [str(item) for item in command]
        with log.open("ab") as output:
            output.write((" ".join(arguments) + "\n").encode())
            output.flush()
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def running(self) -> bool:
        """Whether it hasn't ended."""
        return self._popen.poll() is None

    def check(self) -> None:
        """Raises: ControlPlaneError when the process has ended."""
        code = self._popen.poll()
        if code is not None:
            raise ControlPlaneError(f"{self.name} ended with {code}{self.tail()}")

    def wait_ready(self, probe: Callable[[], bool], deadline: float) -> None:
        """Waits until ``probe`` is true; ``deadline`` is a time of ``time.monotonic()``.

        Raises: ControlPlaneError when the process ends first, or the deadline passes.
        """
        while not probe():
            self.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{self.name} did not become ready in time{self.tail()}")
            time.sleep(POLL_SECONDS)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Sends a signal to the process (only to it)."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """Ends the process at once and waits until it is gone; does nothing if it already is."""
        if self.running():
            self._popen.kill()
        self._popen.wait()

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The end of the log, introduced by its path."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"; the end of {self.log}:", *text])


def http_probe(url: str) -> Callable[[], bool]:
    """A probe that is true when a GET of the address answers 200 (certificates are not checked)."""
    context = ssl._create_unverified_context() if url.startswith("https:") else None

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2, context=context) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return probe


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on.

    They lie below the range from which the kernel takes the local ports of outgoing connections, so that none is
    taken between this answer and its use.
    Raises: ControlPlaneError when too few are free.
    """
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        low = 32768
    first = 10000 if low > 12000 else 49152
    last = low if low > 12000 else 65535
    ports: list[int] = []
    for port in random.sample(range(first, last), last - first):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ControlPlaneError(f"only {len(ports)} of {count} ports are free")
