"""`kubectl qm`: found by kubectl, and it finds the API in the cluster of kubectl's context, as kubectl's user.

Kubernetes without kubelets forwards no port, so `kubectl port-forward` is played here; the rest of kubectl is the real
one where it is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.auth.authentication import Authentication
from api.auth.kubernetes import KubernetesVerifier
from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.store.store import Store
from tests.api.world import document, small_company
from tests.cli.conftest import serving
from tests.store.builders import NOW

BIN = Path(sys.executable).parent
NAMES = ["ranking", "nlp", "vision"]
TOKEN = "kube-token-of-ada"
PLAYED = """#!{python}
import json, os, sys, time
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if "port-forward" not in sys.argv:
    real = {real!r}
    os.execv(real, [real, *sys.argv[1:]]) if real else sys.exit(1)
if {fails!r}:
    print('E1130 17:34:34.142907    5277 memcache.go:265] "Unhandled Error"', file=sys.stderr)
    sys.exit("error: pods is forbidden: User \\"ada\\" cannot create resource \\"pods/portforward\\"")
print("Forwarding from 127.0.0.1:{port} -> 8080", flush=True)
with open({log!r} + ".pid", "w") as pid:
    pid.write(str(os.getpid()))
time.sleep(600)
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Two contexts of a cluster that is not there."""
    users = [{"name": "ada", "user": {"token": TOKEN}}]
    contexts = [
        {"name": "prod", "context": {"cluster": "c", "user": "ada", "namespace": "team-nlp"}},
        {"name": "test", "context": {"cluster": "c", "user": "ada"}},
    ]
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": users,
        "contexts": contexts,
        "current-context": "prod",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


class Reviews:
    """An API server that knows ada's token."""

    async def create(self, resource: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        user = {"username": "ada", "groups": ["system:authenticated"]}
        known = body["spec"]["token"] == TOKEN
        return {"status": {"authenticated": known, **({"user": user} if known else {})}}

    async def close(self) -> None:
        pass


@pytest.fixture
def company(store: Store) -> Iterator[str]:
    """A server as in a cluster: it asks for a proof, and Kubernetes whose it is. Ada may look at everything."""
    small_company(store)
    role = {"role": "viewer", "subjects": [{"kind": "User", "name": "ada"}]}
    binding = parse_objects([document("RoleBinding", "lookers", role)])
    assert not binding.errors
    store.apply_configuration(stored_objects(binding.objects), author="root", reason="start", now=NOW, source="test")
    verifier = KubernetesVerifier(Reviews())  # type: ignore[arg-type]
    with serving(store, Authentication(required=True, verifiers=[verifier])) as url:
        yield url


@pytest.fixture
def plugin(tmp_path: Path, kubeconfig: Path, company: str) -> Run:
    """Runs `kubectl-qm` with a kubectl whose port-forward leads to the company's server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls"

    def run(*arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        played = PLAYED.format(
            python=sys.executable,
            log=str(log),
            real=shutil.which("kubectl"),
            fails=fails,
            port=company.rpartition(":")[2],
        )
        (folder / "kubectl").write_text(played)
        (folder / "kubectl").chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
        return subprocess.run(
            ["kubectl-qm", *arguments], env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_the_api_in_the_cluster_is_asked_and_the_way_to_it_closed(plugin: Run, tmp_path: Path):
    done = plugin("queues", "--context", "test", "-o", "name")
    assert (done.returncode, done.stdout.split()) == (0, NAMES), done.stderr
    [call] = calls(tmp_path)
    assert call == [
        "--context=test",
        "--namespace=queue-manager",
        "port-forward",
        "deployment/queue-manager-api",
        ":8080",
    ]
    pid = int((tmp_path / "calls.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_job_without_a_namespace_is_in_the_one_of_the_context(plugin: Run):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = plugin("explain", "blocked")
    assert done.stdout.startswith("TrainJob team-nlp/blocked: waiting"), done.stderr
    assert "there is no workload 'default/blocked'" in plugin("explain", "blocked", "--context", "test").stderr


def test_who_may_not_forward_is_told_so(plugin: Run):
    done = plugin("queues", fails=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        'error: can\'t reach the API in namespace queue-manager: pods is forbidden: User "ada" cannot create resource'
        ' "pods/portforward"',
        "  may you create pods/portforward there? Or name a server with --server or --profile",
    ]


def test_a_server_that_is_named_is_asked_without_kubectl(plugin: Run, company: str, tmp_path: Path):
    assert plugin("queues", "--server", company, "--token", TOKEN, "-o", "name").stdout.split() == NAMES
    assert not (tmp_path / "calls").exists()


def test_kubectl_finds_the_plugin(company: str):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    command = [kubectl, "qm", "queues", "--server", company, "--token", TOKEN, "-o", "name"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == NAMES, done.stderr


def test_the_users_own_token_goes_along(kubeconfig: Path):
    from queue_manager.cli.tunnel import Tunnel

    assert Tunnel("http://127.0.0.1:1", "prod", str(kubeconfig)).token() == TOKEN
