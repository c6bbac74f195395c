"""What the simulated kubelets do: kwok stages.

Nodes become ready and pods run as soon as they are bound; two of the stages that do this are read from kwok's own
module, the rest is below. Nothing ends by itself: a pod runs until a test ends it, by one of these annotations on the
pod (so: on its template) or by ``ControlPlane.finish_pods`` and ``fail_pods``.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.control_plane import versions
from tests.control_plane.client import Object
from tests.control_plane.nodes import DOWN_LABEL

COMPLETE_AFTER = "test.queue-manager.io/complete-after"
"""Pod annotation: the pod succeeds this long (``2s``) after it runs."""

FAIL_AFTER = "test.queue-manager.io/fail-after"
"""Pod annotation: the pod fails with exit code 1 this long after it runs."""

NEVER_READY = "test.queue-manager.io/never-ready"
"""Pod annotation: the pod stays as it was bound, its containers never start."""

TERMINATE_AFTER = "test.queue-manager.io/terminate-after"
"""Pod annotation: a deleted pod stays terminating this long; without it, it is gone at once."""


def write_stages(target: Path) -> Path:
    """Writes the configuration file for kwok and returns its path."""
    folder = versions.manifests_folder("kwok")
    node_initialize = yaml.safe_load((folder / "node-initialize.yaml").read_text())
    node_initialize["spec"]["selector"]["matchExpressions"].append(
        {"key": f'.metadata.labels["{DOWN_LABEL}"]', "operator": "DoesNotExist"}
    )
    pod_ready = yaml.safe_load((folder / "pod-ready.yaml").read_text())
    pod_ready["spec"]["selector"]["matchExpressions"].append(
        {"key": f'.metadata.annotations["{NEVER_READY}"]', "operator": "DoesNotExist"}
    )
    stages = [
        node_initialize,
        pod_ready,
        _pod_end("pod-complete", COMPLETE_AFTER, "Succeeded", 0, "Completed"),
        _pod_end("pod-fail", FAIL_AFTER, "Failed", 1, "Error"),
        _pod_delete(),
    ]
    target.write_text(yaml.safe_dump_all(stages))
    return target


def _pod_end(name: str, annotation: str, phase: str, exit_code: int, reason: str) -> Object:
    """A stage that ends running pods which carry the annotation, after the time it says."""
    template = f"""
{{{{ $now := Now }}}}
{{{{ $root := . }}}}
conditions:
{{{{ range $type := list "Ready" "ContainersReady" }}}}
- type: {{{{ $type }}}}
  status: "False"
  reason: {"PodCompleted" if exit_code == 0 else "PodFailed"}
  lastTransitionTime: {{{{ $now | Quote }}}}
{{{{ end }}}}
containerStatuses:
{{{{ range $index, $item := .spec.containers }}}}
- name: {{{{ $item.name | Quote }}}}
  image: {{{{ $item.image | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {exit_code}
      reason: {reason}
      startedAt: {{{{ $root.status.startTime | Quote }}}}
      finishedAt: {{{{ $now | Quote }}}}
{{{{ end }}}}
phase: {phase}
"""
    return _stage(
        name,
        [
            {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
            {"key": ".status.phase", "operator": "In", "values": ["Running"]},
            {"key": f'.metadata.annotations["{annotation}"]', "operator": "Exists"},
        ],
        {"statusTemplate": template},
        annotation,
    )


def _pod_delete() -> Object:
    return _stage(
        "pod-delete",
        [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
        {"delete": True},
        TERMINATE_AFTER,
    )


def _stage(name: str, expressions: list[Object], following: Object, delay_annotation: str) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": expressions},
            "delay": {
                "durationMilliseconds": 0,
                "durationFrom": {"expressionFrom": f'.metadata.annotations["{delay_annotation}"]'},
            },
            "next": following,
        },
    }
