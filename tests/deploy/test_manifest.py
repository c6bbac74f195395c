"""deploy/install.yaml as a whole: parts fit each other, pods are locked down, the registration is the code's."""

import itertools
import re

import click
import pytest
import typer
import yaml

from queue_manager.cli.main import app
from queue_manager.cluster.port import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from queue_manager.webhook.certificate_stores import SecretStore
from queue_manager.webhook.registration import LABELS, configurations, installed
from tests.deploy.manifest import INSTALL, NAMESPACE, ROOT, objects, of_kind
from tests.webhook.fakes import FakeCluster

DEPLOYMENTS = sorted(of_kind("Deployment"))


def pod_of(name):
    return of_kind("Deployment")[name]["spec"]["template"]["spec"]


def containers_of(name):
    pod = pod_of(name)
    return [*pod.get("initContainers", ()), *pod["containers"]]


def test_every_object_is_labelled_and_lies_in_our_namespace():
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind}
    for obj in objects():
        assert obj["metadata"]["labels"].items() >= LABELS.items()
        expected = None if obj["kind"] in cluster_wide else NAMESPACE
        assert obj["metadata"].get("namespace") == expected, obj["metadata"]["name"]


def test_names_are_unique():
    keys = [(obj["kind"], obj["metadata"]["name"]) for obj in objects()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("resource", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS])
def test_registration_is_the_codes_without_a_ca_bundle(resource):
    target, selection = installed(NAMESPACE)
    (found,) = of_kind(resource.kind).values()
    assert found == configurations(target, b"", selection)[resource]


def test_certificate_secret_is_the_one_the_webhook_writes():
    store = SecretStore(FakeCluster().port, NAMESPACE)
    assert set(of_kind("Secret")) == {store.name}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_are_locked_down(name):
    pod = pod_of(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers_of(name):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_deployment_fits_its_service_account_service_and_budget(name):
    deployment = of_kind("Deployment")[name]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert pod_of(name)["serviceAccountName"] in of_kind("ServiceAccount")
    budget = of_kind("PodDisruptionBudget")[name]["spec"]
    for selector in (deployment["spec"]["selector"]["matchLabels"], budget["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
        assert selector["app.kubernetes.io/component"] == name.removeprefix("queue-manager-")
    (container,) = pod_of(name)["containers"]
    assert str(container["ports"][0]["containerPort"]) in container["args"]


@pytest.mark.parametrize("name", sorted(of_kind("Service")))
def test_service_leads_to_a_port_that_is_probed(name):
    service, pod = of_kind("Service")[name]["spec"], of_kind("Deployment")[name]["spec"]["template"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_api_is_published_with_authentication_only():
    assert "queue-manager-api" in of_kind("Service")
    (container,) = pod_of("queue-manager-api")["containers"]
    given = list(itertools.pairwise(container["args"]))
    assert ("--auth", "required") in given
    assert "--kubernetes-auth" in container["args"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_arguments_are_those_of_the_command_line(name):
    for container in containers_of(name):
        command = typer.main.get_command(app)
        arguments = list(container["args"])
        while isinstance(command, click.Group):
            command = command.commands[arguments.pop(0)]
        command.make_context("test", arguments)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_roles_are_reachable(name):
    (container,) = pod_of(name)["containers"]
    assert ("--host", "0.0.0.0") in itertools.pairwise(container["args"])


@pytest.mark.parametrize("name", ["queue-manager-controller", "queue-manager-webhook"])
def test_roles_know_their_namespace(name):
    (container,) = pod_of(name)["containers"]
    variables = {item["name"]: item.get("valueFrom", {}).get("fieldRef") for item in container["env"]}
    assert variables["POD_NAMESPACE"] == {"fieldPath": "metadata.namespace"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_database_comes_from_a_secret_that_the_manifest_does_not_hold(name):
    for container in containers_of(name):
        reference = next(item for item in container["env"] if item["name"] == "QM_DATABASE")["valueFrom"][
            "secretKeyRef"
        ]
        assert reference == {"name": "queue-manager-database", "key": "url"}
    assert "queue-manager-database" not in of_kind("Secret")


def test_webhook_service_is_the_registered_one():
    target, _ = installed(NAMESPACE)
    (port,) = of_kind("Service")[target.name]["spec"]["ports"]
    assert port["port"] == target.port


def test_images_name_no_registry_and_the_projects_version():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    images = {container["image"] for name in DEPLOYMENTS for container in containers_of(name)}
    assert images == {f"queue-manager:{version}"}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert compose["services"]["queue-manager"]["image"] in images
    assert f"\nARG VERSION={version}\n" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_kustomization_names_the_manifest():
    kustomization = yaml.safe_load((ROOT / "deploy" / "kustomization.yaml").read_text())
    assert kustomization["resources"] == [INSTALL.name]


def test_compose_publishes_on_the_loopback_address_only():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert "--host" not in service.get("command", ())


def test_image_installs_by_hash_and_runs_as_nobody_special():
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--require-hashes" in text
    assert "\nUSER 65532:65532\n" in text
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
    assert {f"!{path}" for path in copied} <= set(ignored)
