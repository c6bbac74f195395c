"""The simulated cluster with our decisions as its admission webhooks."""

import pytest

from queue_manager.cluster.port import JOBS, ApiError
from queue_manager.cluster.simulated.admission import AdmissionRequest
from queue_manager.webhook.callbacks import Callbacks
from tests.webhook.fakes import TEAM_QUEUE, decider, job, patched

CALLBACKS = Callbacks(decider(), managed=lambda namespace: namespace == "managed")


def asked(obj, old=None, namespace="ml", subresource=""):
    operation = "UPDATE" if old else "CREATE"
    return AdmissionRequest(operation, JOBS, namespace, "job-1", obj, old, "alice", ("nlp",), subresource)


def test_mutates():
    obj = job(labels=TEAM_QUEUE)
    assert patched(obj, CALLBACKS.mutator(asked(obj)))["spec"]["suspend"] is True


def test_knows_managed_namespaces():
    assert CALLBACKS.mutator(asked(job())) == []
    assert CALLBACKS.mutator(asked(job(), namespace="managed"))


def test_refuses():
    old, new = job(labels=TEAM_QUEUE, suspend=False), job(labels={"queue-manager.io/queue": "x"}, suspend=False)
    with pytest.raises(ApiError, match="is admitted from queue 'team'") as caught:
        CALLBACKS.validator(asked(new, old))
    assert caught.value.status == 403
    CALLBACKS.validator(asked(new, old, subresource="status"))
