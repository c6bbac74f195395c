"""The part of the STAND-IN for Kubeflow Trainer that plays KEP-3015 (v2.4): Workload, then PodGroups, then the JobSet.

Written from the KEP's text, without the product's own reader of the field. What is played: the groups of the three
levels and of sequenced jobs, `minCount` from the resolved pods, names, owners, the order of creation, no update of what
was made, nothing made once there are pods. The KEP says of a suspension both that the objects are deleted and that they
are kept; a runtime chooses by annotation (:data:`ON_SUSPEND`), deleting is the default.

JobSet v0.11.1 stores a pod template's ``schedulingGroup`` (its CRD is widened for the tests) but does not hand it on to
its Jobs, as later ones do: :func:`group_of_pod` gives it to the pods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from tests.control_plane.client import JOB_SET, POD, ApiError, Client, Object, Objects

GROUP = "scheduling.k8s.io"
WORKLOAD, POD_GROUP = f"{GROUP}/v1beta1/Workload", f"{GROUP}/v1beta1/PodGroup"
ON_SUSPEND = "test.queue-manager.io/groups-on-suspend"
"""Annotation of a runtime: ``delete`` (default) or ``keep``."""
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


class GroupsPending(Exception):
    """Objects of an earlier start are still there: tried again."""


def templates(scheduling: Object, job_set_spec: Object, train_job: str) -> list[tuple[Object, list[str]]]:
    """The PodGroupTemplates of a TrainJob with the names of the replicated jobs whose pods are in them."""
    jobs = {job["name"]: job for job in job_set_spec["replicatedJobs"]}
    order = (job_set_spec.get("startupPolicy") or {}).get("startupPolicyOrder")
    sequenced = order == "InOrder" or any(job.get("dependsOn") for job in jobs.values())
    entries = scheduling.get("replicatedJobs")
    found: list[tuple[Object, list[str]]] = []
    if not entries:
        parts = [(name, [name]) for name in jobs] if sequenced else [(train_job, list(jobs))]
        for name, members in parts:
            found.append((_template(name, scheduling, sum(_pods(jobs[member]) for member in members)), members))
        return found
    for entry in entries:
        members = entry["targetReplicatedJobs"]
        if "job" in entry:
            (member,) = members
            for index in range(jobs[member].get("replicas", 1)):
                one = jobs[member]["template"]["spec"]["parallelism"]
                found.append((_template(f"{member}-{index}", entry["job"], one), members))
        else:
            pods = sum(_pods(jobs[member]) for member in members)
            found.append((_template("-".join(members), entry, pods), members))
    return found


def _pods(job: Object) -> int:
    return int(job.get("replicas", 1)) * int(job["template"]["spec"]["parallelism"])


def _template(name: str, level: Object, pods: int) -> Object:
    policy = level.get("schedulingPolicy") or {"gang": {}}
    template: Object = {"name": name, "schedulingPolicy": {"basic": {}} if "basic" in policy else _gang(pods)}
    for key in ("schedulingConstraints", "disruptionMode"):
        if key in level:
            template[key] = level[key]
    return template


def _gang(pods: int) -> Object:
    return {"gang": {"minCount": pods}}


def short(name: str, length: int) -> str:
    """A name cut to a length, without a dash at its end."""
    return name[:length].rstrip("-")


def digest(*parts: str) -> str:
    """Ten letters that stand for an object."""
    return hashlib.sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()[:10]


def workload_name(train_job: Object) -> str:
    """``<name>-<hash>``, 63 letters at most."""
    metadata = train_job["metadata"]
    return f"{short(metadata['name'], 52)}-{digest('TrainJob', metadata['namespace'], metadata['uid'])}"


def pod_group_name(train_job: Object, template: str) -> str:
    """``<workload>-<template>-<hash>``; of level 1, whose template is called as the TrainJob, ``<workload>-<hash>``."""
    workload, ending = workload_name(train_job), digest(workload_name(train_job), template)
    if template == train_job["metadata"]["name"]:
        return f"{short(workload, 52)}-{ending}"
    return f"{short(workload, 25)}-{short(template, 25)}-{ending}"


def prepare(client: Client, train_job: Object, runtime: Object, job_set: Object, owner: Object) -> None:
    """Makes or deletes a TrainJob's groups and writes their names into the pod templates of its (resolved) JobSet.

    Raises: GroupsPending while objects of an earlier start are going.
    """
    scheduling = runtime["spec"].get("scheduling")
    if scheduling is None or not client.serves(POD_GROUP):
        return
    metadata = train_job["metadata"]
    namespace = metadata["namespace"]
    planned = templates(scheduling, job_set["spec"], metadata["name"])
    for template, members in planned:
        for job in job_set["spec"]["replicatedJobs"]:
            if job["name"] in members:
                pods = job["template"]["spec"]["template"]["spec"]
                pods["schedulingGroup"] = {"podGroupName": pod_group_name(train_job, template["name"])}
    keeps = (runtime["metadata"].get("annotations") or {}).get(ON_SUSPEND) == "keep"
    if train_job["spec"].get("suspend") and not keeps:
        for kind in (POD_GROUP, WORKLOAD):
            for obj in _owned(client, kind, train_job):
                client.delete(kind, obj["metadata"]["name"], namespace)
        return
    if client.list(POD, namespace, selector=f"{JOB_SET_NAME}={metadata['name']}"):
        return
    _make(client, train_job, [template for template, _ in planned], owner)


def _make(client: Client, train_job: Object, planned: Objects, owner: Object) -> None:
    metadata = train_job["metadata"]
    namespace = metadata["namespace"]
    workload = _there(client, WORKLOAD, train_job, lambda obj: True)
    if workload is None:
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainJob", "name": metadata["name"]}
        spec = {"controllerRef": reference, "podGroupTemplates": planned}
        workload = _create(client, WORKLOAD, workload_name(train_job), namespace, [owner], spec)
    for template in workload["spec"]["podGroupTemplates"]:
        name = template["name"]
        link = {"workloadName": workload["metadata"]["name"], "templateName": name}
        if _there(client, POD_GROUP, train_job, lambda obj, link=link: obj["spec"].get("workloadRef") == link):
            continue
        owners = [owner, {"apiVersion": f"{GROUP}/v1beta1", "kind": "Workload", **_identity(workload)}]
        spec = {"workloadRef": link, **{key: value for key, value in template.items() if key != "name"}}
        _create(client, POD_GROUP, pod_group_name(train_job, name), namespace, owners, spec)


def _identity(obj: Object) -> Object:
    return {key: obj["metadata"][key] for key in ("name", "uid")}


def _there(client: Client, kind: str, train_job: Object, wanted: Any) -> Object | None:
    found = [obj for obj in _owned(client, kind, train_job) if wanted(obj)]
    if any(obj["metadata"].get("deletionTimestamp") for obj in found):
        raise GroupsPending(f"a {kind} of an earlier start is not gone yet")
    return found[0] if found else None


def _owned(client: Client, kind: str, train_job: Object) -> Iterator[Object]:
    uid = train_job["metadata"]["uid"]
    for obj in client.list(kind, train_job["metadata"]["namespace"]):
        if any(owner["uid"] == uid and owner.get("controller") for owner in obj["metadata"].get("ownerReferences", [])):
            yield obj


def _create(client: Client, kind: str, name: str, namespace: str, owners: Objects, spec: Object) -> Object:
    version, _, short_kind = kind.rpartition("/")
    body = {
        "apiVersion": version,
        "kind": short_kind,
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": spec,
    }
    try:
        return client.create(body)
    except ApiError as error:
        if error.status == 409:
            raise GroupsPending(f"{kind} {name} is there already") from error
        raise


def has_gang(scheduling: Object | None) -> bool:
    """Whether some pod group of the field is a gang."""
    if scheduling is None:
        return False
    entries = scheduling.get("replicatedJobs")
    levels = [entry.get("job", entry) for entry in entries] if entries else [scheduling]
    return any("basic" not in (level.get("schedulingPolicy") or {}) for level in levels)


# ---- what a later JobSet does


def widen(document: Any) -> Any:
    """JobSet's CRD with a pod template's ``schedulingGroup``."""
    if isinstance(document, list):
        return [widen(item) for item in document]
    if not isinstance(document, dict):
        return document
    found = {key: widen(value) for key, value in document.items()}
    properties = found.get("properties")
    if isinstance(properties, dict) and {"schedulingGates", "nodeSelector", "containers"} <= properties.keys():
        name = {"type": "object", "properties": {"podGroupName": {"type": "string"}}}
        found["properties"] = {**properties, "schedulingGroup": name}
    return found


def pod_webhook(url: str, bundle: str) -> Object:
    """The webhook that gives pods of JobSets their group."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "scheduling-group.trainer-stand-in"},
        "webhooks": [
            {
                "name": "scheduling-group.trainer-stand-in.test",
                "clientConfig": {"url": f"{url}/mutate-pod", "caBundle": bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "objectSelector": {"matchExpressions": [{"key": JOB_SET_NAME, "operator": "Exists"}]},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
        ],
    }


def group_of_pod(client: Client, pod: Object, namespace: str) -> Objects:
    """JSON patch that gives a new pod the group of its replicated job, as its JobSet's template says."""
    labels = pod["metadata"].get("labels", {})
    job_set = client.find(JOB_SET, labels[JOB_SET_NAME], namespace)
    for job in job_set["spec"]["replicatedJobs"] if job_set else []:
        group = job["template"]["spec"]["template"]["spec"].get("schedulingGroup")
        if job["name"] == labels.get(REPLICATED_JOB) and group:
            return [{"op": "add", "path": "/spec/schedulingGroup", "value": group}]
    return []
