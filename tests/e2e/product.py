"""Our own processes against the test control plane, with exactly the rights of deploy/install.yaml."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import text

from api.configuration.service import apply_text
from api.context import Context
from queue_manager.store.records import State, WorkloadRow
from queue_manager.store.store import Store
from tests.control_plane.client import LEASE, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.e2e import forked

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
NAMESPACE = "queue-manager"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
WEBHOOKS = tuple(f"admissionregistration.k8s.io/v1/{kind}" for kind in WEBHOOK_KINDS)
INSTALLED = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    *WEBHOOK_KINDS,
)
"""What of the install manifest the processes need; the rest would start pods of its image."""

BLOCK, RACK, HOST = "topology.queue-manager.io/block", "topology.queue-manager.io/rack", "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
TRAIN_JOB, JOB_SET = "trainer.kubeflow.org/v1alpha1/TrainJob", "jobset.x-k8s.io/v1alpha2/JobSet"
JOB, POD, EVENT, NODE = "batch/v1/Job", "v1/Pod", "v1/Event", "v1/Node"
RUNTIME = "trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime"


PATIENCE = 60.0
"""Seconds until a state that several controllers bring about counts as missing: many, as machines do much else."""


def wait_for(check: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """Polls until `check` answers something true, and answers that. AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


def free_port() -> int:
    """A loopback port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Role:
    """One process of ours."""

    name: str
    command: list[str]
    log: Path
    process: ForkServerProcess | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> list[str]:
        """The same as a program of its own."""
        return [sys.executable, "-m", "queue_manager.cli.main", *self.command]

    def start(self) -> None:
        """Starts it; its log is appended to."""
        self.process = forked.start(self.command, str(self.log), {**os.environ, **self.environment})

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power."""
        assert self.process is not None
        self.process.kill()
        self.process.join()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.process is not None and self.process.exitcode is None:
            self.process.terminate()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        if self.process is None:
            return
        self.ask_to_stop()
        self.process.join(15)
        if self.process.exitcode is None:
            self.kill()


class Product:
    """Controller and webhook as processes, the store and the configuration service in the test's own."""

    def __init__(self, cluster: ControlPlane, store: Store, database_url: str, folder: Path) -> None:
        self.cluster = cluster
        self.store = store
        self.client = cluster.client
        self._context = Context(store, lambda: datetime.now(UTC))
        self.folder = folder
        install(cluster)
        self.metrics_port, webhook_port = free_port(), free_port()
        self.controller = self._role(
            "controller",
            "queue-manager-controller",
            database_url,
            "--port",
            str(self.metrics_port),
            "--namespace",
            NAMESPACE,
        )
        self.webhook = self._role(
            "webhook",
            "queue-manager-webhook",
            database_url,
            *("--port", str(webhook_port), "--namespace", NAMESPACE, "--url", f"https://127.0.0.1:{webhook_port}"),
        )

    def _role(self, command: str, account: str, database_url: str, *options: str) -> Role:
        kubeconfig = self.cluster.kubeconfig_for_service_account(NAMESPACE, account)
        common = ["--kubeconfig", str(kubeconfig), "--database", database_url]
        return Role(command, [command, *common, *options], self.folder / f"{command}.log")

    @contextlib.contextmanager
    def running(self, *, webhook: bool = True) -> Iterator[Product]:
        """Both processes up and ready, or the controller alone; afterwards stopped, and the webhooks removed."""
        try:
            self.controller.start()
            if webhook:
                self.webhook.start()
            else:
                self.remove_webhooks()
            self.wait_ready()
            if webhook:
                wait_for(self.webhooks_work, "webhooks registered")
            yield self
        except BaseException:
            for role in (self.controller, self.webhook):
                if role.log.exists():
                    print(f"--- {role.name}\n{role.log.read_text()[-8000:]}")
            raise
        finally:
            self.webhook.ask_to_stop()
            self.controller.stop()
            self.webhook.stop()
            self.remove_webhooks()

    def remove_webhooks(self) -> None:
        """Nobody is asked about jobs any more."""
        for kind in WEBHOOKS:
            self.client.delete(kind, "queue-manager.io")

    def webhooks_work(self) -> bool:
        """Whether the API server gets an answer from the webhook to a job it would have to ask about."""
        path = self.client.path(JOB, namespace="default")
        try:
            answer = self.client.request("POST", path, job("probe", "probe"), query={"dryRun": "All"})
        except ApiError:
            return False
        return bool(answer["spec"]["suspend"])

    def wait_ready(self) -> None:
        """Until the controller leads and has caught up."""
        wait_for(lambda: "queue_manager_leader 1.0" in self.metrics() and self._http("/readyz") == "ok\n", "ready", 180)

    def start_again(self, *, lease_lapsed: bool = True) -> None:
        """Starts the killed controller and waits until it leads: when the killed one's lease has run out, or at once
        as if that time had passed."""
        if lease_lapsed:
            with self.store.engine.begin() as connection:
                connection.execute(text("UPDATE leases SET expires_at = clock_timestamp()"))
            long_ago = {"spec": {"renewTime": "2000-01-01T00:00:00.000000Z"}}
            self.client.patch(LEASE, "queue-manager-controller", long_ago, NAMESPACE)
        self.controller.start()
        self.wait_ready()

    def metrics(self) -> str:
        """What the controller's /metrics says, "" while it does not answer."""
        return self._http("/metrics")

    def _http(self, path: str) -> str:
        role = self.controller.process
        assert role is None or role.exitcode is None, f"the controller ended: {self.controller.log.read_text()[-4000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:  # a busy process that answers too late is one of them
            return ""

    # --- configuration and state --------------------------------------------------------------------------------

    def configure(self, *objects: Object | str) -> None:
        """Applies configuration objects (dicts or YAML) as `queue-manager apply` does."""
        for one in objects:
            apply_text(self._context, one if isinstance(one, str) else yaml.safe_dump(one), file="test.yaml")

    def configure_all(self, objects: Iterable[Object]) -> None:
        """Applies many objects at once: one revision."""
        apply_text(self._context, yaml.safe_dump_all(objects), file="test.yaml")

    def row(self, namespace: str, name: str) -> WorkloadRow | None:
        """The newest workload of that name."""
        found = self.store.find_workloads(namespace, name)
        return max(found, key=lambda row: row.created_at) if found else None

    def wait_state(
        self, namespace: str, name: str, *states: State, reason: str = "", timeout: float = PATIENCE
    ) -> WorkloadRow:
        """Until the workload is in one of the states, for this reason if one is given."""
        seen: list[str] = []

        def check() -> WorkloadRow | None:
            row = self.row(namespace, name)
            words = f"{row.state.value} ({row.reason}: {row.message})" if row else "unknown"
            if not seen or seen[-1] != words:
                seen.append(words)
            fits = row is not None and row.state in states and reason in ("", row.reason)
            return row if fits else None

        try:
            found: WorkloadRow = wait_for(check, "", timeout)
        except AssertionError:
            wanted = "/".join(state.value for state in states)
            raise AssertionError(
                f"{namespace}/{name} is not {wanted} within {timeout} s: {' -> '.join(seen)}"
            ) from None
        return found

    def charged(self, queue: str, resource: str = GPU) -> int:
        """What the ledger says is charged to a queue now, draining included."""
        query = text(
            "SELECT coalesce(sum(amount), 0) FROM ledger"
            " WHERE queue = :queue AND resource = :resource AND until IS NULL AND state <> 'reclaimed-loan'"
        )
        with self.store.engine.connect() as connection:
            return int(connection.execute(query, {"queue": queue, "resource": resource}).scalar_one())

    def explanation(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The stored explanation of a workload, {} when there is none."""
        row = self.row(namespace, name)
        return (self.store.explanation(row.uid) if row else None) or {}

    def events(self, namespace: str, name: str) -> list[tuple[str, str]]:
        """(reason, message) of our events on an object, oldest first."""
        found = [e for e in self.client.list(EVENT, namespace) if e.get("involvedObject", {}).get("name") == name]
        ours = [e for e in found if e.get("source", {}).get("component") == "queue-manager"]
        return [(e["reason"], e["message"]) for e in sorted(ours, key=lambda e: int(e["metadata"]["resourceVersion"]))]

    def wait_event(self, namespace: str, name: str, reason: str) -> list[str]:
        """Messages of our events with this reason, once there is one: events follow the commit they tell of."""

        def check() -> list[str]:
            return [message for found, message in self.events(namespace, name) if found == reason]

        found: list[str] = wait_for(check, f"event {reason} on {namespace}/{name}")
        return found

    def log_lines(self) -> list[Mapping[str, Any]]:
        """The controller's structured log."""
        lines = self.controller.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def install(cluster: ControlPlane) -> None:
    """Namespaces, rights, the empty Secret and the webhook registrations of the install manifest."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "install.yaml").read_text())
    cluster.apply([document for document in documents if document and document["kind"] in INSTALLED])


# --- objects ----------------------------------------------------------------------------------------------------


def config(kind: str, name: str, spec: Object | None = None, namespace: str = "") -> Object:
    """A configuration object."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "queue-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec or {}}


TOPOLOGY = config("Topology", "racks", {"levels": [{"nodeLabel": key} for key in (BLOCK, RACK, HOST)]})
FLAVOR = config("Flavor", "gpus", {"topologyName": "racks"})
PRIORITIES = (
    config("PriorityClass", "low", {"value": 10}),
    config("PriorityClass", "high", {"value": 1000}),
)


def queue(name: str, gpus: int, *, cohort: str = "", **spec: Any) -> Object:
    """A queue with a GPU quota in the flavor `gpus`; CPU and memory are not counted."""
    quotas = {"name": "gpus", "resources": [{"name": GPU, "nominalQuota": gpus, **spec.pop("limits", {})}]}
    base: Object = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [quotas]}],
        **({"cohort": cohort} if cohort else {}),
        **spec,
    }
    return config("Queue", name, base)


def job(name: str, queue: str, *, parallelism: int = 1, completions: int = 0, gpus: int = 1, **more: Any) -> Object:
    """A batch/v1 Job with GPU pods."""
    labels = {"queue-manager.io/queue": queue, **more.pop("labels", {})}
    metadata: Object = {"name": name, "labels": labels, "annotations": more.pop("annotations", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": parallelism,
            "completions": completions or parallelism,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container("main", gpus)]}},
            **more,
        },
    }


def container(name: str, gpus: int) -> Object:
    """A container that asks for GPUs by limits alone, as people write it."""
    resources: Object = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "image": "example", "resources": resources}


def train_job(
    name: str, queue: str, *, nodes: int, gpus: int = 8, runtime: str = "torch-distributed", **more: Any
) -> Object:
    """A TrainJob; `labels` and `annotations` are added."""
    labels = {"queue-manager.io/queue": queue, **more.pop("labels", {})}
    trainer: Object = {
        "numNodes": nodes,
        "resourcesPerNode": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": labels, "annotations": more.pop("annotations", {})},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer, **more},
    }
