"""Each service account may do what its role does, and nothing that it does not do."""

from itertools import product

import pytest

from queue_manager.controller.kueue_signs import SIGNS
from queue_manager.controller.view import WATCHED, WATCHED_BY_WEBHOOK
from queue_manager.webhook.registration import RESOURCES
from tests.deploy.manifest import NAMESPACE, Call, rules_of

CONTROLLER, API, WEBHOOK = (f"queue-manager-{role}" for role in ("controller", "api", "webhook"))
LEASE, CERTIFICATE, REGISTRATION = "queue-manager-controller", "queue-manager-webhook-certificate", "queue-manager.io"
USER = "user-namespace"
"""Jobs lie in any namespace."""


def watches(watched) -> list[Call]:
    """Lists and watches of these collections; a field selector on a name counts as that name."""
    calls = []
    for resource, query in watched:
        name = query.field_selector.partition("metadata.name=")[2]
        calls += [Call(verb, resource.group, resource.plural, name=name) for verb in ("list", "watch")]
    return calls


# What the code calls. Watches are read from the code; a write that is added there belongs here and into the manifest.
CALLS = {
    CONTROLLER: [
        *watches(WATCHED.items()),
        *watches(SIGNS),
        # controller/view.py read_snapshot
        Call("get", "", "configmaps", USER, "train-runtime-snapshot"),
        # controller/executor.py: writes of kinds, reading again, annotations, events
        *(
            Call(verb, group, plural, USER, "job")
            for verb, (group, plural) in product(
                ("get", "patch"),
                (("trainer.kubeflow.org", "trainjobs"), ("jobset.x-k8s.io", "jobsets"), ("batch", "jobs")),
            )
        ),
        Call("patch", "batch", "jobs/status", USER, "job"),
        Call("delete", "jobset.x-k8s.io", "jobsets", USER, "job"),
        Call("delete", "batch", "jobs", USER, "job"),
        Call("create", "", "events", USER),
        # controller/pod_gates.py
        Call("patch", "", "pods", USER, "job-0"),
        # kinds/plain_pods.py: groups of plain pods are stopped by deleting their pods
        Call("delete", "", "pods", USER, "pod"),
        # controller/leader.py
        Call("create", "coordination.k8s.io", "leases", NAMESPACE),
        Call("get", "coordination.k8s.io", "leases", NAMESPACE, LEASE),
        Call("patch", "coordination.k8s.io", "leases", NAMESPACE, LEASE),
    ],
    # api/auth/kubernetes.py
    API: [Call("create", "authentication.k8s.io", "tokenreviews")],
    WEBHOOK: [
        *watches(WATCHED_BY_WEBHOOK.items()),
        *watches(SIGNS),
        # webhook/owners.py
        *(Call("get", resource.group, resource.plural, USER, "job") for resource in RESOURCES),
        # webhook/registration.py, webhook/certificate_stores.py; what they would create is in the manifest
        *(
            Call(verb, "admissionregistration.k8s.io", plural, "", REGISTRATION)
            for verb, plural in product(
                ("get", "patch"), ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
            )
        ),
        Call("get", "", "secrets", NAMESPACE, CERTIFICATE),
        Call("patch", "", "secrets", NAMESPACE, CERTIFICATE),
    ],
}

FORBIDDEN = {
    CONTROLLER: [
        Call("get", "", "secrets", NAMESPACE, "queue-manager-database"),
        Call("list", "", "secrets"),
        Call("list", "", "configmaps"),
        Call("create", "", "pods", USER),
        Call("delete", "trainer.kubeflow.org", "trainjobs", USER, "job"),
        Call("list", "apiextensions.k8s.io", "customresourcedefinitions"),
        Call("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        Call("patch", "coordination.k8s.io", "leases", NAMESPACE, "another"),
        Call("patch", "coordination.k8s.io", "leases", USER, LEASE),
        Call("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", REGISTRATION),
    ],
    API: [Call("list", "", "pods"), Call("patch", "batch", "jobs", USER, "job")],
    WEBHOOK: [
        Call("patch", "batch", "jobs", USER, "job"),
        Call("list", "batch", "jobs"),
        Call("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        Call("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        Call("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "another"),
        Call("get", "", "secrets", NAMESPACE, "queue-manager-database"),
        Call("patch", "", "secrets", USER, CERTIFICATE),
    ],
}


def pairs(table):
    return [pytest.param(account, call, id=f"{account} {call}") for account, calls in table.items() for call in calls]


@pytest.mark.parametrize(("account", "call"), pairs(CALLS))
def test_may_do_what_its_code_does(account, call):
    assert any(rule.allows(call) for rule in rules_of(account))


@pytest.mark.parametrize(("account", "call"), pairs(FORBIDDEN))
def test_may_not(account, call):
    assert not any(rule.allows(call) for rule in rules_of(account))


@pytest.mark.parametrize("account", [CONTROLLER, API, WEBHOOK])
def test_every_right_is_used(account):
    unused = [
        f"{rule.role} rule {rule.index}: {verb} {group}/{resource} {name}"
        for rule in rules_of(account)
        for verb, group, resource, name in product(
            sorted(rule.verbs), sorted(rule.groups), sorted(rule.resources), sorted(rule.names) or [""]
        )
        if not any(
            (call.verb, call.group, call.resource) == (verb, group, resource)
            and rule.allows(call)
            and name in ("", call.name)
            for call in CALLS[account]
        )
    ]
    assert unused == []


def test_no_right_is_a_wildcard():
    for account in CALLS:
        for rule in rules_of(account):
            assert "*" not in rule.groups | rule.resources | rule.verbs
