"""`queue-manager up`: one command, on a kubeconfig and with the demo; stopped in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, JOB, TOPOLOGY, WEBHOOKS, free_port, job, queue, wait_for


@contextmanager
def up(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process and its URL, once it is ready; ended afterwards whatever happens."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "queue_manager.cli.main",
        "up",
        "--port",
        str(port),
        "--data",
        str(folder / "data"),
    ]
    with (folder / "up.log").open("ab") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answer(f"{url}/readyz") is not None, f"ready; log: {folder / 'up.log'}", 120)
        yield process, url
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def answer(url: str, body: bytes | None = None) -> Any:
    """The decoded answer, None while there is none."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/yaml"}, method="PUT" if body else "GET")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from error
    except OSError:
        return None
    return json.loads(text) if text.startswith((b"{", b"[")) else text


def something_runs(url: str) -> bool:
    return bool((answer(f"{url}/api/v1/workloads?state=running") or {}).get("items"))


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C; the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(60)


@pytest.mark.cluster
def test_up_works_on_a_kubeconfig_and_takes_its_registration_away(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.create_nodes(gpu_fleet(blocks=1, racks=1, hosts=2))
    namespace = cluster.new_namespace()
    with up(tmp_path, "--cluster", "kubeconfig", "--no-demo", "--kubeconfig", str(cluster.kubeconfig)) as (
        process,
        url,
    ):
        configuration = yaml.safe_dump_all([TOPOLOGY, FLAVOR, queue("team", 2)]).encode()
        assert answer(f"{url}/api/v1/config", configuration) is not None
        wait_for(lambda: all(cluster.client.find(kind, "queue-manager.io") for kind in WEBHOOKS), "registered")
        created = cluster.client.create(job("a", "team", parallelism=2), namespace)
        assert created["spec"]["suspend"] is True, "the webhook holds it in the request that creates it"
        cluster.wait_pods(namespace, 2)
        assert answer(f"{url}/api/v1/workloads/{namespace}/a")["state"] in ("starting", "running")
        assert stop(process) == 0
    assert not any(cluster.client.find(kind, "queue-manager.io") for kind in WEBHOOKS)
    cluster.client.delete(JOB, "a", namespace)


def test_the_demo_is_ready_soon_survives_ctrl_c_and_starts_again_on_its_data(tmp_path: Path) -> None:
    started = time.monotonic()
    with up(tmp_path, "--demo") as (process, url):
        print(f"ready after {time.monotonic() - started:.1f} s")
        wait_for(lambda: something_runs(url), "a gang runs")
        tree = answer(f"{url}/api/v1/tree")
        assert any(cell["used"] for cell in tree["items"][0]["cells"])
        assert stop(process) == 0
    check = [sys.executable, "-m", "queue_manager.cli.main", "db", "check"]
    subprocess.run([*check, "--database", f"embedded:{tmp_path / 'data' / 'database'}"], check=True)
    with up(tmp_path, "--demo") as (process, url):
        wait_for(lambda: something_runs(url), "a gang runs again")
        assert stop(process) == 0
