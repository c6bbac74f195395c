"""The API inside a cluster, reached with kubectl and the credentials that it uses.

kubectl's port-forward, and not the API server's proxy: the proxy takes the Authorization header for itself, and the API
would not know who asks.
"""

from __future__ import annotations

import atexit
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from queue import Empty, Queue

from queue_manager.cli.errors import CommandError

PATIENCE = 20.0
"""Seconds until the first line of port-forward."""
PORT = 8080
_LOGGED = re.compile(r"[IWEF]\d{4} ")
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A way to the API; `server` is its end here."""

    server: str
    context: str
    kubeconfig: str

    def token(self) -> str:
        """The bearer token of the user of the context; "" where it proves itself in another way."""
        from queue_manager.cluster.credentials import Credentials, CredentialsError

        try:
            authorization = Credentials.kubeconfig(self.kubeconfig, self.context).access().authorization or ""
        except CredentialsError as error:
            raise CommandError(f"can't use the credentials of the cluster: {error}") from None
        kind, _, token = authorization.partition(" ")
        return token if kind.lower() == "bearer" else ""


def _kubectl(context: str, kubeconfig: str, *arguments: str) -> list[str]:
    chosen = [f"--context={context}"] if context else []
    chosen += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    return ["kubectl", *chosen, *arguments]


def namespace_of(context: str, kubeconfig: str) -> str:
    """The namespace of a context; `default` where it names none."""
    command = _kubectl(context, kubeconfig, "config", "view", "--minify", "--output=jsonpath={..namespace}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip() or "default") if done.returncode == 0 else ""


def open_tunnel(context: str, kubeconfig: str, namespace: str) -> Tunnel:
    """Forwards a free port to the API until this process ends."""
    what = f"--namespace={namespace}", "port-forward", "deployment/queue-manager-api", f":{PORT}"
    try:
        process = subprocess.Popen(
            _kubectl(context, kubeconfig, *what),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError:
        raise CommandError(
            "kubectl is not installed", "install it, or name a server with --server or --profile"
        ) from None
    atexit.register(_end, process)
    # Without this a SIGTERM would leave kubectl behind.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = _FORWARDING.search(_first_line(process))
    if found is None:
        _end(process)
        said = _said(process.stderr.read() if process.stderr else "")
        where = f"namespace {namespace}" + (f" of context {context}" if context else "")
        raise CommandError(
            f"can't reach the API in {where}: {said or 'kubectl port-forward gave no answer'}",
            "may you create pods/portforward there? Or name a server with --server or --profile",
        )
    return Tunnel(f"http://127.0.0.1:{found[1]}", context, kubeconfig)


def _said(text: str) -> str:
    """What kubectl tells people, without the lines of its log (E1130 17:34:34.142907 ...)."""
    lines = [line for line in text.splitlines() if not _LOGGED.match(line)]
    return " ".join("\n".join(lines).split()).removeprefix("error: ")


def _first_line(process: subprocess.Popen[str]) -> str:
    lines: Queue[str] = Queue()
    stdout = process.stdout
    assert stdout is not None

    def read() -> None:
        # Reads on: a full pipe would stop kubectl.
        for line in stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    try:
        return lines.get(timeout=PATIENCE)
    except Empty:
        return ""


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
