"""A real Kubernetes control plane on the loopback address, for one test session.

::

    with ControlPlane.start(folder) as cluster:
        cluster.create_nodes(gpu_fleet())
        namespace = cluster.new_namespace()
        cluster.client.create(job, namespace)

It consists of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, simulated kubelets (kwok), JobSet and
Trainer, as separate processes with logs in ``folder``. They end with the ``with`` block, and also when this process
is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal

import yaml

from tests.control_plane import kwok as simulated_kubelets
from tests.control_plane import training, versions
from tests.control_plane.certificates import Authority, key_pem, new_key, public_pem, write_private
from tests.control_plane.client import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    EVENT,
    JOB,
    JOB_SET,
    LEASE,
    MUTATING_WEBHOOK,
    NAMESPACE,
    NODE,
    POD,
    PRIORITY_CLASS,
    SECRET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    VALIDATING_WEBHOOK,
    ApiError,
    Client,
    Object,
    Objects,
)
from tests.control_plane.nodes import DOWN_LABEL
from tests.control_plane.processes import Process, free_ports, http_probe

ADMIN_TOKEN = "admin-token-of-a-test-control-plane"
START_TIMEOUT = 180.0
"""Seconds within which everything must be ready; about 5 are needed on two idle cores."""

RELEASE_SECONDS = 5.0
"""How long after its deletion an object keeps its finalizers before :meth:`ControlPlane.reset` takes them off."""

OUR_NAMESPACE = "queue-manager"
"""The one of deploy/install.yaml."""

TERMINAL = ("Succeeded", "Failed")

_USERS = {
    "admin": "kubernetes-admin",
    "controller-manager": "system:kube-controller-manager",
    "scheduler": "system:kube-scheduler",
    "kubelets": "system:node:simulated",
    "jobset": "system:serviceaccount:jobset-system:jobset-controller-manager",
    "trainer": "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
}
"""Components and the users they act as, so that webhooks see the names of a real cluster; all may do everything."""

_WRITTEN_KINDS = (LEASE, SECRET, CONFIG_MAP, EVENT)
"""What our processes write into their namespace. Their accounts and rights are as installed and stay: an API server
takes a moment to notice that there are others of the same name."""

_RESET_KINDS = (MUTATING_WEBHOOK, VALIDATING_WEBHOOK, CLUSTER_TRAINING_RUNTIME, PRIORITY_CLASS)
"""Cluster-scoped kinds of which :meth:`ControlPlane.reset` removes what wasn't there after the start."""


class ControlPlane:
    """A running control plane; made by :meth:`start`."""

    def __init__(self, folder: Path) -> None:
        """Prepares names, certificates and ports; starts nothing."""
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.authority = Authority("control-plane-test")
        self._ports = free_ports(9)
        etcd, etcd_peer, server, manager, scheduler, *self.controller_ports = self._ports
        self.etcd_url = f"http://127.0.0.1:{etcd}"
        self._etcd_peer_url = f"http://127.0.0.1:{etcd_peer}"
        self.server = f"https://127.0.0.1:{server}"
        self._manager_url = f"https://127.0.0.1:{manager}"
        self._scheduler_url = f"https://127.0.0.1:{scheduler}"
        self.token = ADMIN_TOKEN
        self.ca_file = folder / "ca.crt"
        self.start_seconds = 0.0
        """How long the start took."""
        self._client: Client | None = None
        self._deadline = 0.0
        self._baseline: dict[str, set[str]] = {}

    # ---- start and stop

    @classmethod
    def start(
        cls,
        folder: str | Path,
        *,
        controller_manager: bool = True,
        scheduler: bool = True,
        kwok: bool = True,
        jobset: bool = True,
        trainer: bool | Literal["stand-in"] = True,
        stand_in_generation: Literal["v2.1", "v2.3", "v2.4"] = "v2.3",
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Sequence[str] = (),
        timeout: float = START_TIMEOUT,
    ) -> ControlPlane:
        """Starts a control plane and returns it when every part is ready.

        ``folder`` takes data, logs and credentials. ``trainer`` is the real controller, our ``"stand-in"`` for the
        newer API (its generation by ``stand_in_generation``) or none; it needs ``jobset``. ``feature_gates`` go to
        the API server, controller manager and scheduler, ``runtime_config`` (``"scheduling.k8s.io/v1beta1=true"``)
        to the API server. ``timeout`` is in seconds.

        Raises: FileNotFoundError when it isn't built, ControlPlaneError with the end of the log of a part that ends
        or isn't ready in time. Nothing is left running then.
        """
        if trainer and not jobset:
            raise ValueError("the trainer needs JobSet")
        path = Path(folder).resolve()
        path.mkdir(parents=True, exist_ok=True)
        self = cls(path)
        began = time.monotonic()
        self._deadline = began + timeout
        try:
            with ThreadPoolExecutor(1) as pool:
                crds = pool.submit(training.load_crds, jobset, trainer, stand_in_generation)
                self._start_core(feature_gates or {}, runtime_config)
                self.apply(crds.result())
            # The slowest to become ready come first.
            probes = []
            if trainer == "stand-in":
                probes.append(training.start_stand_in(self, stand_in_generation))
            elif trainer:
                probes.append(training.start_trainer(self))
            if jobset:
                probes.append(training.start_jobset(self))
            if controller_manager:
                probes.append(self._start_controller_manager(feature_gates or {}))
            if scheduler:
                probes.append(self._start_scheduler(feature_gates or {}))
            if kwok:
                self._start_kubelets()
            for name, url in probes:
                self.processes[name].wait_ready(http_probe(url), self._deadline)
            if trainer:
                training.install_runtimes(self)
            self._baseline = self._inventory()
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - began
        return self

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every process, the last started first, at once: nothing in the folder is worth a clean end."""
        if self._client is not None:
            self._client.close()
        for process in reversed(self.processes.values()):
            with suppress(ProcessLookupError):
                process.kill()
        self.processes.clear()

    def check(self) -> None:
        """Raises: ControlPlaneError, with the end of its log, when a part has ended."""
        for process in self.processes.values():
            process.check()

    def run(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Process:
        """Starts a process that ends with the control plane; its output goes to ``<folder>/<name>.log``."""
        surroundings = os.environ if environment is None else environment
        # Memory is plenty, processor time isn't: collect garbage more rarely.
        process = Process(name, command, self.folder / f"{name}.log", {"GOGC": "400", **surroundings})
        self.processes[name] = process
        return process

    def log(self, name: str) -> str:
        """What a part has printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start_core(self, gates: Mapping[str, bool], runtime_config: Sequence[str]) -> None:
        """etcd, then the API server; makes the admin's client and kubeconfig."""
        etcd = self.run(
            "etcd",
            [
                versions.binary_path("etcd"),
                "--data-dir", self.folder / "etcd",
                "--listen-client-urls", self.etcd_url,
                "--advertise-client-urls", self.etcd_url,
                "--listen-peer-urls", self._etcd_peer_url,
                "--initial-advertise-peer-urls", self._etcd_peer_url,
                "--initial-cluster", f"default={self._etcd_peer_url}",
                "--unsafe-no-fsync",
                "--log-level", "warn",
            ],
        )  # fmt: skip
        certificate, key = self.authority.server(
            "127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"
        ).write(self.folder, "server")
        self.ca_file.write_bytes(self.authority.certificate)
        account_key = new_key()
        write_private(self.folder / "service-account.key", key_pem(account_key))
        (self.folder / "service-account.pub").write_bytes(public_pem(account_key))
        tokens = "".join(
            f'{self.component_token(part)},{user},{part},"system:masters"\n' for part, user in _USERS.items()
        )
        write_private(self.folder / "tokens.csv", tokens.encode())
        etcd.wait_ready(http_probe(self.etcd_url + "/readyz"), self._deadline)

        server = self.run(
            "kube-apiserver",
            [
                versions.binary_path("kube-apiserver"),
                "--bind-address", "127.0.0.1",
                "--secure-port", self.server.rsplit(":", 1)[1],
                "--tls-cert-file", certificate,
                "--tls-private-key-file", key,
                "--client-ca-file", self.ca_file,
                "--token-auth-file", self.folder / "tokens.csv",
                "--authorization-mode", "RBAC",
                "--etcd-servers", self.etcd_url,
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-account-key-file", self.folder / "service-account.pub",
                "--service-account-signing-key-file", self.folder / "service-account.key",
                "--service-cluster-ip-range", "10.0.0.0/24",
                "--disable-admission-plugins", "ServiceAccount",
                "--max-requests-inflight", "3000",
                "--max-mutating-requests-inflight", "3000",
                "--delete-collection-workers", "4",
                "--allow-privileged",
                *_gates(gates),
                *(["--runtime-config", ",".join(runtime_config)] if runtime_config else []),
            ],
        )  # fmt: skip
        server.wait_ready(http_probe(self.server + "/readyz"), self._deadline)
        self._client = Client(self.server, ca_file=self.ca_file, token=self.token)
        self.kubeconfig = self.component_kubeconfig("admin")

    def _start_controller_manager(self, gates: Mapping[str, bool]) -> tuple[str, str]:
        self.run(
            "kube-controller-manager",
            [
                versions.binary_path("kube-controller-manager"),
                "--kubeconfig", self.component_kubeconfig("controller-manager"),
                "--bind-address", "127.0.0.1",
                "--secure-port", self._manager_url.rsplit(":", 1)[1],
                "--cert-dir", self.folder / "controller-manager",
                "--service-account-private-key-file", self.folder / "service-account.key",
                "--root-ca-file", self.ca_file,
                "--use-service-account-credentials",
                "--leader-elect=false",
                # The defaults (20 and 50 a second) would be measured instead of us.
                "--kube-api-qps", "1000",
                "--kube-api-burst", "2000",
                "--concurrent-job-syncs", "20",
                "--concurrent-namespace-syncs", "20",
                # The simulated kubelets send no heartbeats; a node is down when a test says so.
                "--node-monitor-grace-period", "24h",
                "--node-monitor-period", "1s",
                *_gates(gates),
            ],
        )  # fmt: skip
        return "kube-controller-manager", self._manager_url + "/healthz"

    def _start_scheduler(self, gates: Mapping[str, bool]) -> tuple[str, str]:
        self.run(
            "kube-scheduler",
            [
                versions.binary_path("kube-scheduler"),
                "--kubeconfig", self.component_kubeconfig("scheduler"),
                "--bind-address", "127.0.0.1",
                "--secure-port", self._scheduler_url.rsplit(":", 1)[1],
                "--cert-dir", self.folder / "scheduler",
                "--leader-elect=false",
                "--kube-api-qps", "1000",
                "--kube-api-burst", "2000",
                *_gates(gates),
            ],
        )  # fmt: skip
        return "kube-scheduler", self._scheduler_url + "/healthz"

    def _start_kubelets(self) -> None:
        self.run(
            "kwok",
            [
                versions.binary_path("kwok"),
                "--kubeconfig", self.component_kubeconfig("kubelets"),
                "--config", simulated_kubelets.write_stages(self.folder / "stages.yaml"),
                "--manage-all-nodes",
                "--node-lease-duration-seconds", "0",
            ],
        )  # fmt: skip

    @property
    def client(self) -> Client:
        """The admin's JSON client."""
        assert self._client is not None, "the API server is not started"
        return self._client

    # ---- credentials

    def component_kubeconfig(self, part: str) -> Path:
        """Kubeconfig of the admin or of a component."""
        return self._write_kubeconfig(part, {"token": self.component_token(part)})

    def kubeconfig_for_service_account(self, namespace: str, name: str, *, seconds: int = 86400) -> Path:
        """Kubeconfig with a fresh token of an existing service account: exactly its rights, for ``seconds``."""
        token = self.token_for_service_account(namespace, name, seconds=seconds)
        return self._write_kubeconfig(f"{namespace}-{name}", {"token": token}, namespace=namespace)

    def token_for_service_account(self, namespace: str, name: str, *, seconds: int = 86400) -> str:
        """A token of an existing service account (TokenRequest API). Raises: ApiError 404 when there is none."""
        answer = self.client.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}},
        )
        return str(answer["status"]["token"])

    def kubeconfig_for_user(self, user: str, groups: Iterable[str] = ()) -> Path:
        """Kubeconfig of any user and groups, by a client certificate; it may do what RBAC grants to these names."""
        pair = self.authority.client(user, groups)
        safe = "".join(letter if letter.isalnum() else "-" for letter in user)
        certificate, key = pair.write(self.folder, f"user-{safe}")
        return self._write_kubeconfig(f"user-{safe}", {"client-certificate": str(certificate), "client-key": str(key)})

    def component_token(self, part: str) -> str:
        """The token of the admin or of a component."""
        return self.token if part == "admin" else f"{part}-token-of-a-test-control-plane"

    def _write_kubeconfig(self, name: str, user: Object, *, namespace: str = "default") -> Path:
        path = self.folder / f"{name}.kubeconfig"
        context = {"cluster": "test", "user": name, "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.server, "certificate-authority": str(self.ca_file)}}
            ],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        write_private(path, yaml.safe_dump(config).encode())
        return path

    # ---- what tests put in

    def apply(self, what: str | Path | Object | Iterable[Object]) -> Objects:
        """Applies a manifest file, a folder, YAML text or objects; see :meth:`Client.apply`."""
        return self.client.apply(what)

    def new_namespace(self, prefix: str = "test", *, labels: Mapping[str, str] | None = None) -> str:
        """Creates a namespace with a fresh name and returns the name."""
        stored = self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"generateName": f"{prefix}-", "labels": dict(labels or {})},
            }
        )
        return str(stored["metadata"]["name"])

    def create_nodes(self, nodes: Iterable[Object], *, timeout: float = 60) -> list[str]:
        """Creates nodes (see :mod:`tests.control_plane.nodes`), waits until pods can be put on them; their names."""
        names = {self.client.create(node)["metadata"]["name"] for node in nodes}

        def not_ready() -> list[str]:
            return sorted(
                node["metadata"]["name"]
                for node in self.client.list(NODE)
                if node["metadata"]["name"] in names and not _node_usable(node)
            )

        if "kube-controller-manager" in self.processes:
            self.client.wait(lambda: not not_ready(), f"{len(names)} nodes are ready", timeout=timeout, show=not_ready)
        return sorted(names)

    def node_down(self, name: str) -> None:
        """Makes a node stop: not ready, and its pods, once deleted, stay terminating until :meth:`node_up`."""
        self.client.patch(NODE, name, {"metadata": {"labels": {DOWN_LABEL: "true"}}})
        for pod in self.client.list(POD, fields=f"spec.nodeName={name}"):
            self._annotate_pod(pod, "24h")
        self._set_ready(name, "Unknown", "NodeStatusUnknown", "simulated kubelet stopped posting node status")

    def node_up(self, name: str) -> None:
        """Makes a stopped node ready again; its terminating pods go away."""
        for pod in self.client.list(POD, fields=f"spec.nodeName={name}"):
            self._annotate_pod(pod, None)
        self.client.patch(NODE, name, {"metadata": {"labels": {DOWN_LABEL: None}}})
        self._set_ready(name, "True", "KubeletReady", "simulated node is ready")

    def _annotate_pod(self, pod: Object, duration: str | None) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"annotations": {simulated_kubelets.TERMINATE_AFTER: duration}}}
        with _missing_ok():
            self.client.patch(POD, metadata["name"], patch, metadata["namespace"])

    def _set_ready(self, name: str, status: str, reason: str, message: str) -> None:
        condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
        self.client.patch(NODE, name, {"status": {"conditions": [condition]}}, form="strategic", subresource="status")

    # ---- pods

    def pods(self, namespace: str | None = None, selector: str = "") -> Objects:
        """Pods, in one namespace or in all, by label selector, ordered by name."""
        return sorted(self.client.list(POD, namespace, selector=selector), key=lambda pod: pod["metadata"]["name"])

    def wait_pods(
        self, namespace: str, count: int, *, selector: str = "", phase: str = "Running", timeout: float = 60
    ) -> Objects:
        """Waits until exactly ``count`` pods match and all are in ``phase`` and not terminating; returns them."""

        def check() -> bool:
            pods = self.pods(namespace, selector)
            ready = [pod for pod in pods if pod_phase(pod) == phase]
            return len(pods) == len(ready) == count

        self.client.wait(
            check, f"{count} pods {phase}", timeout=timeout, show=lambda: describe_pods(self.pods(namespace))
        )
        return self.pods(namespace, selector)

    def wait_no_pods(self, namespace: str, *, selector: str = "", timeout: float = 60) -> None:
        """Waits until no pod matches, terminating ones included."""
        self.client.wait(
            lambda: not self.pods(namespace, selector),
            "no pods",
            timeout=timeout,
            show=lambda: describe_pods(self.pods(namespace, selector)),
        )

    def finish_pods(self, namespace: str, selector: str = "") -> list[str]:
        """Ends the running pods that match with exit code 0, as a kubelet reports it; returns their names.

        Raises: AssertionError when no running pod matches.
        """
        return self._end_pods(namespace, selector, "Succeeded", 0, "Completed")

    def fail_pods(self, namespace: str, selector: str = "", *, exit_code: int = 1, reason: str = "Error") -> list[str]:
        """Ends the running pods that match with an exit code, as a kubelet reports it; returns their names.

        Raises: AssertionError when no running pod matches.
        """
        return self._end_pods(namespace, selector, "Failed", exit_code, reason)

    def _end_pods(self, namespace: str, selector: str, phase: str, exit_code: int, reason: str) -> list[str]:
        running = [pod for pod in self.pods(namespace, selector) if pod_phase(pod) == "Running"]
        assert running, f"no running pod matches {selector!r} in {namespace}"
        for pod in running:
            self.client.patch(
                POD,
                pod["metadata"]["name"],
                {"status": _ended_status(pod, phase, exit_code, reason)},
                namespace,
                form="strategic",
                subresource="status",
            )
        return [pod["metadata"]["name"] for pod in running]

    # ---- between tests

    def reset(self, *, keep_namespaces: Iterable[str] = (), timeout: float = 120) -> None:
        """Removes what tests made: webhooks, jobs of every kind, pods, nodes, namespaces, runtimes, priority classes.

        Waits until all jobs, pods and nodes are gone; namespaces go away behind it, so use a fresh name each time
        (:meth:`new_namespace`). What was there right after the start, and ``keep_namespaces``, stays.

        The namespace that our processes are installed into is emptied instead: its name is fixed, and the next test
        would wait the five seconds that Kubernetes takes to remove a namespace.
        """
        self.check()
        inventory = self._inventory()
        for kind in _RESET_KINDS:
            for name in inventory.get(kind, set()) - self._baseline.get(kind, set()):
                self.client.delete(kind, name)
        kinds = [kind for kind in (TRAIN_JOB, JOB_SET, JOB) if self.client.serves(kind)]
        for kind in kinds:
            self._delete_everywhere(kind)
        doomed = inventory[NAMESPACE] - self._baseline[NAMESPACE] - set(keep_namespaces)
        if OUR_NAMESPACE in doomed:
            doomed.remove(OUR_NAMESPACE)
            for kind in _WRITTEN_KINDS:
                self.client.delete_all(kind, OUR_NAMESPACE)
        self.client.wait(
            lambda: self._sweep(kinds),
            "no jobs, pods and nodes",
            timeout=timeout,
            show=lambda: {
                kind: [
                    f"{item['metadata'].get('namespace')}/{item['metadata']['name']}" for item in self.client.list(kind)
                ]
                for kind in (*kinds, POD, NODE)
            },
        )
        if self.client.serves(TRAINING_RUNTIME):
            for runtime in self.client.list(TRAINING_RUNTIME):
                self.client.delete(TRAINING_RUNTIME, runtime["metadata"]["name"], runtime["metadata"]["namespace"])
        for name in doomed:
            self.client.delete(NAMESPACE, name)

    def _sweep(self, kinds: Sequence[str]) -> bool:
        """One step of the reset; true when no job, pod and node is left."""
        left = [item for kind in kinds for item in self.client.list(kind)]
        if left:
            # A controller that was about to make an object still does after its owner's deletion: delete it again.
            for kind in kinds:
                self._delete_everywhere(kind)
            self._release(left)
        pods = self.pods()
        alive = {pod["metadata"]["namespace"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        for namespace in alive:
            self.client.delete_all(POD, namespace, grace_seconds=0)
        # Nobody counts the pods of Jobs that are being deleted; Kubernetes takes the finalizers off one pod at a time.
        self._release(self.pods() if alive else pods, at_once=True)
        if left or pods:
            return False
        if self.client.list(NODE):
            self.client.delete_all(NODE)
            return False
        return True

    def _delete_everywhere(self, kind: str) -> None:
        alive = [item for item in self.client.list(kind) if not item["metadata"].get("deletionTimestamp")]
        for namespace in {item["metadata"]["namespace"] for item in alive}:
            self.client.delete_all(kind, namespace)

    def _release(self, objects: Iterable[Object], *, at_once: bool = False) -> None:
        """Takes the finalizers off objects whose controller doesn't: at once where the finalizer is not Kubernetes'."""
        for obj in objects:
            deleted = obj["metadata"].get("deletionTimestamp")
            finalizers = obj["metadata"].get("finalizers")
            if not deleted or not finalizers:
                continue
            known = set(finalizers) <= {"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"}
            if at_once or not known or time.time() - datetime.fromisoformat(deleted).timestamp() > RELEASE_SECONDS:
                self._drop_finalizers(obj)

    def _drop_finalizers(self, obj: Object) -> None:
        metadata = obj["metadata"]
        with _missing_ok():
            self.client.patch(
                f"{obj['apiVersion']}/{obj['kind']}",
                metadata["name"],
                {"metadata": {"finalizers": None}},
                metadata["namespace"],
            )

    def _inventory(self) -> dict[str, set[str]]:
        kinds = [kind for kind in (*_RESET_KINDS, NAMESPACE) if self.client.serves(kind)]
        return {kind: {item["metadata"]["name"] for item in self.client.list(kind)} for kind in kinds}


def pod_phase(pod: Object) -> str:
    """The phase of a pod, or ``Terminating`` once it is deleted and hasn't ended."""
    phase = str(pod.get("status", {}).get("phase", "Pending"))
    if pod["metadata"].get("deletionTimestamp") and phase not in TERMINAL:
        return "Terminating"
    return phase


def describe_pods(pods: Iterable[Object]) -> str:
    """One line a pod: name, phase, node, gates, and why it isn't scheduled."""
    lines = []
    for pod in pods:
        spec, status = pod["spec"], pod.get("status", {})
        waiting = [item.get("message", "") for item in status.get("conditions", []) if item["type"] == "PodScheduled"]
        gates = [gate["name"] for gate in spec.get("schedulingGates", [])]
        lines.append(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']} {pod_phase(pod)} "
            f"node={spec.get('nodeName')} gates={gates} {' '.join(waiting)}"
        )
    return "\n".join(lines) or "(no pods)"


def _node_usable(node: Object) -> bool:
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions", []))
    blocked = [taint for taint in node["spec"].get("taints", []) if taint["key"] == "node.kubernetes.io/not-ready"]
    return ready and not blocked


def _ended_status(pod: Object, phase: str, exit_code: int, reason: str) -> Object:
    """The status that a kubelet would write for a pod whose containers all ended with an exit code."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition_reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    started = pod["status"].get("startTime", now)
    terminated = {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}
    return {
        "phase": phase,
        "conditions": [
            {"type": kind, "status": "False", "reason": condition_reason, "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"terminated": terminated},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _gates(gates: Mapping[str, bool]) -> list[str]:
    if not gates:
        return []
    return ["--feature-gates", ",".join(f"{name}={str(value).lower()}" for name, value in gates.items())]


class _missing_ok:
    """Suppresses the ApiError of an object that is gone."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, ApiError) and error.status == 404
