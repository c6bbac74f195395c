"""Names of Kubernetes, of its Job controller and of JobSet that several kinds read or write."""

from __future__ import annotations

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""The field of affinities that kube-scheduler enforces."""
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_SET = "jobset.sigs.k8s.io/"
JOB_SET_NAME = JOB_SET + "jobset-name"
REPLICATED_JOB_NAME = JOB_SET + "replicatedjob-name"
