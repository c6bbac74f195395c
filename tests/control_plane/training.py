"""JobSet and Trainer for a test control plane: their CRDs, webhooks, certificates and processes.

Which binaries and manifests are used can be set from outside, to run the same tests against other versions:

=========================  ===========================================================================================
``QM_JOBSET_BINARY``       a JobSet manager
``QM_JOBSET_MANIFESTS``    a folder like its ``config/components`` (``crd/bases``, ``webhook/manifests.yaml``)
``QM_TRAINER_BINARY``      a trainer-controller-manager
``QM_TRAINER_MANIFESTS``   a folder like its ``manifests/base`` (``crds``, ``webhook/manifests.yaml``, ``runtimes``)
=========================  ===========================================================================================
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.control_plane import trainer_stand_in, trainer_stand_in_crds, trainer_stand_in_groups, versions
from tests.control_plane.certificates import Authority, Pair, valid_server_pair, write_private
from tests.control_plane.client import Object, Objects, load_manifests

if TYPE_CHECKING:
    from tests.control_plane.cluster import ControlPlane

JOBSET_NAMESPACE = "jobset-system"
TRAINER_NAMESPACE = "kubeflow-system"
TRAINER_SERVICE = "kubeflow-trainer-controller-manager"
TRAINER_SECRET = "kubeflow-trainer-webhook-cert"

TRAINER_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""Where Trainer reads its webhook certificate: the path is fixed in its code, so all its processes of this machine
share the one that lies there."""

JOBSET_POD_SELECTOR = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
"""JobSet's deployment narrows its pod webhooks to its own pods."""


def load_crds(jobset: bool, trainer: bool | str, generation: str) -> Objects:
    """The CRDs of JobSet and of Trainer or its stand-in, without their descriptions: a second of the start."""
    documents: Objects = []
    if jobset:
        found = load_manifests(_manifests("jobset", "QM_JOBSET_MANIFESTS") / "crd" / "bases")
        documents += trainer_stand_in_groups.widen(found) if generation == "v2.4" else found
    if trainer == "stand-in":
        documents += trainer_stand_in_crds.crds(generation)
    elif trainer:
        documents += load_manifests(_manifests("trainer", "QM_TRAINER_MANIFESTS") / "crds")
    return [_without_descriptions(document) for document in documents]


def _without_descriptions(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _without_descriptions(value)
            for key, value in node.items()
            if key != "description" or not isinstance(value, str)
        }
    return [_without_descriptions(item) for item in node] if isinstance(node, list) else node


def start_jobset(cluster: ControlPlane) -> tuple[str, str]:
    """Installs JobSet's webhooks and starts its manager; returns the process name and its readiness URL."""
    manifests = _manifests("jobset", "QM_JOBSET_MANIFESTS")
    webhook_port, health_port = cluster.controller_ports[0:2]
    authority = Authority("jobset-ca")
    service = "jobset-webhook-service"
    authority.server(f"{service}.{JOBSET_NAMESPACE}.svc").write(cluster.folder / "jobset", "tls")
    cluster.apply(_namespace(JOBSET_NAMESPACE))
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": str(cluster.folder / "jobset")},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "clientConnection": {"qps": 1000, "burst": 2000},
    }
    path = cluster.folder / "jobset.yaml"
    path.write_text(yaml.safe_dump(config))
    cluster.run(
        "jobset",
        [_binary("jobset", "QM_JOBSET_BINARY"), "--config", path],
        _environment(cluster, "jobset"),
    )
    # The server's part of the certificate exists, its webhooks are registered at once: they answer when it is ready.
    webhooks = local_webhooks(
        load_manifests(manifests / "webhook" / "manifests.yaml"),
        names={
            "MutatingWebhookConfiguration": "jobset-mutating-webhook-configuration",
            "ValidatingWebhookConfiguration": "jobset-validating-webhook-configuration",
        },
        namespace=JOBSET_NAMESPACE,
        service=service,
        port=webhook_port,
        ca=authority.certificate,
    )
    for document in webhooks:
        for webhook in document.get("webhooks", []):
            if webhook["name"] in ("mpod.kb.io", "vpod.kb.io"):
                webhook["objectSelector"] = JOBSET_POD_SELECTOR
    cluster.apply(webhooks)
    return "jobset", f"http://127.0.0.1:{health_port}/readyz"


def start_trainer(cluster: ControlPlane) -> tuple[str, str]:
    """Installs Trainer's webhooks and starts its manager; returns the process name and its readiness URL."""
    manifests = _manifests("trainer", "QM_TRAINER_MANIFESTS")
    webhook_port, health_port = _trainer_ports(cluster)
    authority, server = _trainer_certificates()
    cluster.apply(_namespace(TRAINER_NAMESPACE))
    cluster.apply(_trainer_secret(authority, server))
    cluster.apply(
        local_webhooks(
            load_manifests(manifests / "webhook" / "manifests.yaml"),
            names={
                "MutatingWebhookConfiguration": "defaulter.trainer.kubeflow.org",
                "ValidatingWebhookConfiguration": "validator.trainer.kubeflow.org",
            },
            namespace=TRAINER_NAMESPACE,
            service=TRAINER_SERVICE,
            port=webhook_port,
            ca=authority.certificate,
        )
    )
    binary = _binary("trainer-controller-manager", "QM_TRAINER_BINARY")
    health = f"127.0.0.1:{health_port}"
    if "QM_TRAINER_BINARY" in os.environ and _reads_configuration(binary):
        config = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhook_port},
            "leaderElection": {"leaderElect": False},
            "certManagement": {
                "enable": True,
                "webhookServiceName": TRAINER_SERVICE,
                "webhookSecretName": TRAINER_SECRET,
            },
            "clientConnection": {"qps": 1000, "burst": 2000},
        }
        path = cluster.folder / "trainer.yaml"
        path.write_text(yaml.safe_dump(config))
        arguments = ["--config", str(path)]
    else:
        arguments = ["--health-probe-bind-address", health, "--webhook-server-port", str(webhook_port)]
    cluster.run("trainer", [binary, *arguments], _environment(cluster, "trainer"))
    return "trainer", f"http://{health}/readyz"


def start_stand_in(cluster: ControlPlane, generation: str) -> tuple[str, str]:
    """Starts our stand-in for Trainer (:mod:`tests.control_plane.trainer_stand_in`); process name, readiness URL."""
    webhook_port, health_port = _trainer_ports(cluster)
    authority = Authority("trainer-stand-in-ca")
    certificate, key = authority.server("127.0.0.1").write(cluster.folder / "trainer-stand-in", "tls")
    cluster.apply(trainer_stand_in.webhooks(f"https://127.0.0.1:{webhook_port}", authority.certificate, generation))
    cluster.run(
        "trainer-stand-in",
        [
            sys.executable, "-m", "tests.control_plane.trainer_stand_in",
            "--server", cluster.server,
            "--ca-file", cluster.ca_file,
            "--generation", generation,
            "--webhook-port", str(webhook_port),
            "--certificate", certificate,
            "--key", key,
            "--health-port", str(health_port),
        ],
        {
            **_environment(cluster, "trainer"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            trainer_stand_in.TOKEN_VARIABLE: cluster.component_token("trainer"),
        },
    )  # fmt: skip
    return "trainer-stand-in", f"http://127.0.0.1:{health_port}/readyz"


def install_runtimes(cluster: ControlPlane) -> Objects:
    """Applies the runtimes that Trainer ships (torch-distributed, deepspeed-distributed, torchtune ...)."""
    return cluster.apply(_manifests("trainer", "QM_TRAINER_MANIFESTS") / "runtimes")


def local_webhooks(
    documents: Objects, *, names: Mapping[str, str], namespace: str, service: str, port: int, ca: bytes
) -> Objects:
    """Turns generated webhook manifests into ones for a webhook that listens on a port of this machine.

    The API server dials the service that a webhook names; one of type ExternalName leads it to localhost, while the
    certificate is still checked against ``<service>.<namespace>.svc``. ``names`` gives each kind's object name.
    Returns the service and the configurations.
    """
    external = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service, "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    for document in documents:
        document["metadata"]["name"] = names[document["kind"]]
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "service": {"namespace": namespace, "name": service, "port": port, "path": path},
                "caBundle": base64.b64encode(ca).decode(),
            }
    return [external, *documents]


def _trainer_certificates() -> tuple[Pair, Pair]:
    """The authority and the server certificate in Trainer's fixed folder; made there if missing or near their end.

    Trainer's own rotation would make them, put them into its Secret and wait until a kubelet mounts that; with
    valid ones in both places it starts at once, and control planes that run at the same time don't disturb each
    other.
    """
    host = f"{TRAINER_SERVICE}.{TRAINER_NAMESPACE}.svc"
    folder = TRAINER_CERTIFICATES
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = ("ca.crt", "ca.key", "tls.crt", "tls.key")
        if all((folder / name).is_file() for name in names):
            ca_certificate, ca_key, certificate, key = ((folder / name).read_bytes() for name in names)
            authority, server = Pair(ca_certificate, ca_key), Pair(certificate, key)
            if valid_server_pair(authority.certificate, server, host, datetime.timedelta(days=365)):
                return authority, server
        maker = Authority("kubeflow-trainer-ca", organization="kubeflow-trainer", use_rsa=True)
        authority, server = maker.pair, maker.server(host)
        contents = (authority.certificate, authority.key, server.certificate, server.key)
        for name, content in zip(names, contents, strict=True):
            write_private(folder / name, content)
        return authority, server


def _trainer_secret(authority: Pair, server: Pair) -> Object:
    content = {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "tls.crt": server.certificate,
        "tls.key": server.key,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TRAINER_SECRET, "namespace": TRAINER_NAMESPACE},
        "data": {name: base64.b64encode(value).decode() for name, value in content.items()},
    }


def _reads_configuration(binary: Path) -> bool:
    """Whether a Trainer takes a configuration file (from v2.1 on) instead of single flags."""
    answer = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False, timeout=30)
    return "webhook-server-port" not in answer.stdout + answer.stderr


def _trainer_ports(cluster: ControlPlane) -> tuple[int, int]:
    return cluster.controller_ports[2], cluster.controller_ports[3]


def _environment(cluster: ControlPlane, part: str) -> dict[str, str]:
    """Environment of a controller: its credentials, and the folder for temporary files that Trainer counts on."""
    return {**os.environ, "KUBECONFIG": str(cluster.component_kubeconfig(part)), "TMPDIR": "/tmp"}


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _binary(name: str, variable: str) -> Path:
    given = os.environ.get(variable)
    return Path(given) if given else versions.binary_path(name)


def _manifests(part: str, variable: str) -> Path:
    given = os.environ.get(variable)
    return Path(given) if given else versions.manifests_folder(part)
