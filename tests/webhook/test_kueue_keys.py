"""Jobs that name their queue as Kueue has it: told from others, changed and judged like our own where that is on."""

import asyncio

import msgspec
import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.port import JOB_SETS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from queue_manager.kinds import kueue_keys
from queue_manager.webhook import review
from queue_manager.webhook.certificate_stores import FolderStore
from queue_manager.webhook.registration import NAME, Selection, Url
from queue_manager.webhook.run import Options, run_webhook
from tests.webhook.fakes import (
    ALICE_ANNOTATIONS,
    CATALOGUE,
    KINDS,
    OURSELVES,
    FakeCluster,
    FakeLookup,
    create,
    decider,
    job,
    owner_of,
    patched,
    update,
)
from tests.webhook.test_run import wait_for

KUEUE = "kueue.x-k8s.io/"
QUEUE = {KUEUE + "queue-name": "team"}


def reading(*objects, **more):
    return decider(*objects, kueue_keys=True, **more)


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob"])
def test_is_suspended_and_carries_who_asked_and_keeps_its_label(kind):
    obj = job(kind=kind, labels=QUEUE)
    result = patched(obj, reading().mutate(create(obj)).patch)
    assert result["spec"]["suspend"] is True
    assert result["metadata"]["annotations"] == ALICE_ANNOTATIONS
    assert result["metadata"]["labels"] == QUEUE
    assert reading().mutate(create(result)).patch == []


def test_is_left_alone_where_the_labels_are_not_ours_to_read():
    assert decider().mutate(create(job(labels=QUEUE))).patch == []
    assert decider().validate(create(job(labels={KUEUE + "queue-name": "No Queue"}))).allowed


def test_in_a_managed_namespace_its_queue_is_the_one_it_names():
    obj = job(labels=QUEUE)
    assert patched(obj, reading().mutate(create(obj, managed=True)).patch)["metadata"]["labels"] == QUEUE
    result = patched(obj, decider().mutate(create(obj, managed=True)).patch)
    assert result["metadata"]["labels"] == {**QUEUE, "queue-manager.io/queue": "default"}


def test_an_empty_name_names_no_queue():
    assert reading().mutate(create(job(labels={KUEUE + "queue-name": ""}))).patch == []


def test_child_of_such_a_job_is_left_alone():
    parent = job("set", kind="JobSet", labels=QUEUE, uid="1")
    child = job("set-0", labels={"queue-manager.io/queue": "team"}, owner=owner_of(parent))
    assert reading(parent).mutate(create(child)).patch == []
    assert decider(parent).mutate(create(child)).patch


def test_unknown_names_are_told_with_the_label_that_was_written():
    labels = {KUEUE + "queue-name": "teem", KUEUE + "priority-class": "hihg"}
    verdict = reading().validate(create(job(labels=labels)))
    assert verdict.warnings == (
        f"metadata.labels[{KUEUE}queue-name]: there is no queue 'teem', the job waits until there is one; "
        "did you mean 'team'?",
        f"metadata.labels[{KUEUE}priority-class]: there is no priority class 'hihg'; did you mean 'high'?",
    )


def test_our_label_is_the_one_that_is_judged_where_both_stand():
    labels = {KUEUE + "queue-name": "teem", "queue-manager.io/queue": "team"}
    assert reading().validate(create(job(labels=labels))).warnings == ()


def with_template(annotations):
    obj = job(labels=QUEUE)
    obj["spec"]["template"] = {"metadata": {"annotations": annotations}}
    return obj


def test_level_of_no_topology_on_a_pod_template_is_refused():
    where = f"spec.template.metadata.annotations[{KUEUE}podset-required-topology]"
    refused = reading().validate(create(with_template({KUEUE + "podset-required-topology": "topology/rak"}))).refused
    assert refused == f"{where}: 'topology/rak' is no level of any topology; did you mean 'topology/rack'?"
    preferred = reading().validate(create(with_template({KUEUE + "podset-preferred-topology": "topology/rak"})))
    assert preferred.allowed
    assert len(preferred.warnings) == 1
    assert reading().validate(create(with_template({KUEUE + "podset-required-topology": "topology/rack"}))).allowed


def test_bad_value_is_refused_once():
    verdict = reading(check=kueue_keys.validate).validate(create(with_template({KUEUE + "podset-slice-size": "x"})))
    where = f"spec.template.metadata.annotations[{KUEUE}podset-slice-size]"
    assert verdict.refused == f"{where}: must be a whole number of at least 1, not 'x'"


def test_running_job_does_not_change_its_queue():
    old = job(labels=QUEUE, suspend=False)
    new = job(labels={KUEUE + "queue-name": "research"}, suspend=False)
    assert reading().validate(update(old, new)).refused.startswith(f"metadata.labels[{KUEUE}queue-name]: the job is")
    assert decider().validate(update(old, new)).allowed
    ours = job(labels={**QUEUE, "queue-manager.io/queue": "team"}, suspend=False)
    assert reading().validate(update(old, ours)).allowed, "the same queue by our label"


async def test_registration_follows_what_is_read(tmp_path):
    cluster, lookup = FakeCluster(), FakeLookup()
    options = Options(
        names=("localhost", "127.0.0.1"),
        host="127.0.0.1",
        port=0,
        target=lambda port: Url(f"https://127.0.0.1:{port}"),
        selection=Selection(identities=(OURSELVES,)),
    )
    running = run_webhook(cluster.port, KINDS, lookup, FolderStore(tmp_path), lambda: CATALOGUE, SystemClock(), options)

    def labels():
        found = [cluster.objects.get((r.plural, "", NAME)) for r in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
        selectors = [
            {s["key"] for e in c["webhooks"] for s in e["objectSelector"]["matchExpressions"]} for c in found if c
        ]
        return selectors if len(selectors) == 2 else []

    task = asyncio.create_task(running)
    try:
        ours, both = {"queue-manager.io/queue"}, {"queue-manager.io/queue", KUEUE + "queue-name"}
        await wait_for(lambda: labels() == [ours, ours])
        lookup.kueue_keys = True
        await wait_for(lambda: labels() == [both, both])
        lookup.kueue_keys = False
        await wait_for(lambda: labels() == [ours, ours])
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("kueue.x-k8s.io/queue-name", True),
        (r"kueue.x-k8s.io\/queue-name", True),
        (r"kueue\u002ex-k8s.io/queue-name", True),
        ("queue-manager.io/queue", False),
    ],
)
def test_a_review_that_names_kueue_nowhere_is_known_by_its_bytes(written, named):
    obj = '{"metadata": {"labels": {"' + written + '": "team"}}}'
    body = (
        '{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "kind": {"kind": "Job"}, "object": ' + obj + "}}"
    )
    assert review.decode(body.encode()).names_kueue is named


def test_an_owner_that_was_read_may_be_kueues_where_the_request_names_it_nowhere():
    parent = job("set", kind="JobSet", labels=QUEUE, uid="1")
    child = create(job("set-0", labels={"queue-manager.io/queue": "team"}, owner=owner_of(parent)))
    asked = msgspec.structs.replace(child, names_kueue=False, read={(JOB_SETS, "ml", "set"): parent})
    assert reading().mutate(asked).patch == []
