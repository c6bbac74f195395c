"""The install manifest on a real API server."""

import asyncio
import subprocess
from random import Random

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.view import OPTIONAL, WATCHED, WATCHED_BY_WEBHOOK, ClusterView
from tests.control_plane import versions
from tests.deploy.manifest import INSTALL, NAMESPACE, objects
from tests.deploy.test_rbac import CALLS, FORBIDDEN

pytestmark = pytest.mark.cluster

RIGHTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.fixture
def namespace(cluster):
    """The control plane with our namespace in it, which a dry run does not make for what lies in it."""
    (found,) = (obj for obj in objects() if obj["kind"] == "Namespace")
    cluster.apply(found)
    return cluster


def test_every_object_is_accepted(namespace):
    command = [str(versions.binary_path("kubectl")), "--kubeconfig", str(namespace.kubeconfig), "apply"]
    command += ["--server-side", "--dry-run=server", "--filename", str(INSTALL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(objects())


@pytest.fixture
def rights(namespace):
    """The control plane with our service accounts and their rights."""
    made = namespace.apply([obj for obj in objects() if obj["kind"] in RIGHTS])
    yield namespace
    for obj in made:
        if obj["kind"].startswith("ClusterRole"):
            namespace.client.delete(f"{obj['apiVersion']}/{obj['kind']}", obj["metadata"]["name"])


def test_rights_are_what_the_table_says(rights):
    wrong = [
        f"{account} {'may not' if expected else 'may'} {call}"
        for table, expected in ((CALLS, True), (FORBIDDEN, False))
        for account, calls in table.items()
        for call in calls
        if allowed(rights.client, account, call) is not expected
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("account", "watched"),
    [("queue-manager-controller", WATCHED), ("queue-manager-webhook", WATCHED_BY_WEBHOOK)],
)
def test_watches_work_with_the_rights_of_the_service_account(rights, account, watched):
    kubeconfig = rights.kubeconfig_for_service_account(NAMESPACE, account)

    async def sync():
        api = ApiServer(Credentials.kubeconfig(str(kubeconfig)))
        view = ClusterView(api, SystemClock(), Random(1), lambda *_: None, watched)
        watching = asyncio.create_task(view.run())
        try:
            async with asyncio.timeout(20):
                await view.synced()
            served = [r for r in view.reflectors.values() if r.resource not in OPTIONAL or r.last_error != "not served"]
            return [reflector.last_error for reflector in served if reflector.last_error]
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await api.close()

    assert asyncio.run(sync()) == []


def allowed(client, account, call):
    """What the API server's authorizer says."""
    resource, _, subresource = call.resource.partition("/")
    attributes = {
        "verb": call.verb,
        "group": call.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": call.namespace,
        "name": call.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": attributes},
    }
    return client.create(review)["status"]["allowed"]
