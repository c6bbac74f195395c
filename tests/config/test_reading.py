"""Good files: what they mean for the engine, and that they survive export."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_manager.config.compiled import compile_objects, to_engine
from queue_manager.config.export import export
from queue_manager.config.models import KINDS, Queue
from queue_manager.config.parse import parse, parse_objects
from queue_manager.config.tree import build_tree
from queue_manager.config.validate import advise, validate
from queue_manager.engine.configuration import (
    AdmissionCheck,
    CellQuota,
    FairSharing,
    FlavorFungibility,
    Limits,
    PartyLimits,
    PreemptionPolicy,
    QueueingStrategy,
    Starvation,
    StopPolicy,
)
from queue_manager.engine.workload import Requirement, Taint, Toleration

HERE = Path(__file__).parent
MINUTE = 60_000_000


def read(name: str):
    result = parse((HERE / name).read_text(), name)
    assert [str(error) for error in result.errors] == []
    return result


def test_example_is_valid_and_compiles():
    objects = read("example.yaml").objects
    assert validate(objects) == []
    compiled = to_engine(objects, revision=7)
    configuration = compiled.configuration
    assert configuration.revision == 7
    assert configuration.resources.excluded_prefixes == ("example.com/",)
    assert configuration.topologies["racks"].levels[-1] == "kubernetes.io/hostname"
    flavor = configuration.flavors["h100"]
    assert flavor.node_taints == (Taint("gpu", "true", "NoSchedule"),)
    assert flavor.tolerations == (Toleration("gpu", "Exists", "", ""),)
    assert flavor.topology == "racks"
    assert configuration.cohorts["research"].weight_milli == 1500

    queue = configuration.queues["nlp"]
    quotas = queue.resource_groups[0].flavors[0].quotas
    assert quotas["cpu"] == CellQuota(1500)
    assert quotas["memory"] == CellQuota(3 * 2**39, None, 2**40)
    assert quotas["nvidia.com/gpu"] == CellQuota(64, 16, None)
    assert queue.strategy is QueueingStrategy.STRICT_FIFO
    assert queue.preemption.borrow_within_cohort is PreemptionPolicy.LOWER_PRIORITY
    assert queue.preemption.borrow_priority_threshold == 100
    assert queue.when_can_preempt is FlavorFungibility.MAY_STOP_SEARCH
    assert queue.namespace_selector == (
        Requirement("team", "In", ("nlp",)),
        Requirement("stage", "NotIn", ("test",)),
    )
    assert configuration.queues["research/vision"].namespace_selector == ()
    assert configuration.queues["research/vision"].stop_policy is StopPolicy.HOLD
    assert queue.inactive == ""
    share = PartyLimits(running=4, resources={"nvidia.com/gpu": 16})
    assert queue.limits == Limits(max_jobs=100, per_user=share, min_run_time=90 * MINUTE)

    assert compiled.configuration.local_queues["team-nlp/default"].queue == "nlp"
    urgent = compiled.priority_classes["urgent"]
    assert (urgent.value, urgent.may_preempt, urgent.preemptible, urgent.min_run_time) == (
        1000,
        True,
        False,
        30 * MINUTE,
    )
    settings = compiled.settings
    assert (settings.kueue_labels, settings.drain_timeout) == ("on", 15 * MINUTE)
    assert (settings.ready_timeout, settings.recovery_timeout) == (20 * MINUTE, 20 * MINUTE)
    assert (settings.requeue_by_eviction_time, settings.backoff_limit) == (False, 5)


def test_without_a_selector_no_namespace_is_selected_as_in_kueue():
    text = "apiVersion: queue-manager.io/v1\nkind: Queue\nmetadata: {name: q}\n"
    objects = parse(text).objects
    assert to_engine(objects).configuration.queues["q"].namespace_selector is None
    assert [(w.field, w.message) for w in advise(objects)] == [
        ("spec.namespaceSelector", "no namespace may use this queue")
    ]


def test_fields_without_effect_are_said():
    warnings = [str(warning) for warning in advise(read("example.yaml").objects)]
    assert not any("spec.limits" in warning or "spec.kueueLabels" in warning for warning in warnings)
    assert all("has no effect" in warning or "comes on top of them" in warning for warning in warnings)


def test_kueue_objects_are_translated_and_losses_are_said():
    result = read("kueue.yaml")
    assert validate(result.objects) == []
    compiled = to_engine(result.objects)
    queues = compiled.configuration.queues
    assert queues["team-a"].cohort == "team-a"
    assert queues["team-a"].when_can_borrow is FlavorFungibility.MAY_STOP_SEARCH
    assert queues["team-a"].when_can_preempt is FlavorFungibility.MAY_STOP_SEARCH
    assert queues["team-a"].namespace_selector == ()
    assert queues["team-b"].namespace_selector is None
    assert queues["team-a"].checks == (AdmissionCheck("prov"),)
    assert queues["team-b"].checks == (AdmissionCheck("dataset", ("spot",)), AdmissionCheck("licence"))
    assert compiled.configuration.cohorts["team-a"].parent == "all"
    assert compiled.configuration.cohorts["all"].parent == ""
    assert compiled.configuration.local_queues["a/main"].stop_policy is StopPolicy.HOLD
    assert compiled.priority_classes["high"].value == 10000
    assert compiled.settings.ready_timeout == 5 * MINUTE
    assert compiled.settings.recovery_timeout == 3 * MINUTE
    assert compiled.configuration.fair_sharing == FairSharing()
    assert [(w.kind, w.field) for w in result.warnings] == [
        ("AdmissionCheck", "kind"),
        ("Settings", ""),
    ]


@pytest.mark.parametrize("name", ["example.yaml", "kueue.yaml"])
def test_export_round_trips_and_is_stable(name: str):
    objects = read(name).objects
    text = export(objects)
    again = parse(text, "export.yaml")
    assert again.errors == ()
    assert sorted(again.objects, key=lambda item: item.key) == sorted(objects, key=lambda item: item.key)
    assert export(reversed(again.objects)) == text
    assert to_engine(again.objects) == to_engine(objects)


def test_export_is_read_alike_by_other_yaml_readers():
    # `on` is a boolean for YAML 1.1 (kubectl, PyYAML); the export must not depend on our reader.
    yaml = pytest.importorskip("yaml")
    documents = {each["kind"]: each for each in yaml.safe_load_all(export(read("example.yaml").objects))}
    assert documents["Settings"]["spec"]["kueueLabels"] == "on"
    assert documents["Flavor"]["spec"]["nodeTaints"][0]["value"] == "true"


def test_stored_objects_compile_and_unreadable_ones_are_named():
    class Row:
        def __init__(self, kind, name, spec, namespace=""):
            self.kind, self.name, self.spec, self.namespace = kind, name, spec, namespace
            self.labels = {}

    rows = [Row("Queue", "q", {"namespaceSelector": {}}), Row("Queue", "new", {"fieldOfTheFuture": 1})]
    compiled = compile_objects(rows, 3)
    assert list(compiled.configuration.queues) == ["q"]
    assert [problem.name for problem in compiled.problems] == ["new"]


def test_paths_of_nodes():
    tree = build_tree(read("example.yaml").objects)
    assert tree.queues["nlp"].path == "research/nlp"
    assert tree.queues["research/vision"].path == "research/vision"
    assert tree.find("Queue", "research/nlp") is tree.queues["nlp"]
    assert tree.queues_below("research") == ["nlp", "research/vision"]


def test_queue_with_unknown_flavor_is_inactive_and_the_rest_works():
    spec = {"resourceGroups": [group("cpu", "gone", 1)], "namespaceSelector": {}}
    objects = parse_objects([obj("Queue", "broken", spec), obj("Queue", "fine", {"namespaceSelector": {}})]).objects
    queues = to_engine(objects).configuration.queues
    assert queues["broken"].inactive == "flavor gone does not exist"
    assert queues["fine"].inactive == ""


def test_queue_below_a_cycle_is_inactive():
    cohorts = [
        obj("Cohort", "a", {"parent": "b"}),
        obj("Cohort", "b", {"parent": "a"}),
        obj("Cohort", "c", {"parent": "a"}),
    ]
    objects = parse_objects([*cohorts, obj("Queue", "q", {"cohort": "c"})]).objects
    assert to_engine(objects).configuration.queues["q"].inactive == "its cohorts form a cycle: a -> b -> a"


def test_a_thousand_queues_are_read_in_order():
    objects = parse_objects(
        [
            obj("Flavor", "f", {}),
            *(obj("Queue", f"q{i:04}", {"resourceGroups": [group("cpu", "f", i)]}) for i in range(1000)),
        ]
    ).objects
    text = export(objects)
    result = parse(text)
    assert validate(result.objects) == []
    assert len([item for item in result.objects if isinstance(item, Queue)]) == 1000
    assert export(result.objects) == text


def obj(kind: str, name: str, spec: dict) -> dict:
    return {"apiVersion": "queue-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def group(resource: str, flavor: str, nominal: object) -> dict:
    quota = {"name": resource, "nominalQuota": nominal}
    return {"coveredResources": [resource], "flavors": [{"name": flavor, "resources": [quota]}]}


@pytest.mark.parametrize("kind", KINDS)
def test_json_schema_of_every_kind_can_be_published(kind: str):
    schema = KINDS[kind].model_json_schema()
    assert schema["properties"]["kind"]["const"] == kind
    assert schema["additionalProperties"] is False


def test_what_has_no_effect_yet_is_told():
    result = parse(
        "apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {name: default}\nspec:\n"
        "  waitForPodsReady: {timeout: 5m}\n  kueueLabels: 'on'\n  userMayOverride: [example.com/x]\n---\n"
        "apiVersion: queue-manager.io/v1\nkind: RoleBinding\nmetadata: {name: r}\n"
        "spec: {role: viewer, subjects: [{kind: User, name: u}]}\n"
    )
    assert not result.errors
    told = {problem.field for problem in advise(result.objects) if "no effect" in problem.message}
    assert told == {"spec.userMayOverride"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", None),
        ("{starvation: {}}", None),
        ("{starvation: {after: 1h30m}}", Starvation(90 * MINUTE, 1)),
        ("{starvation: {after: 10m, perCohort: 3}}", Starvation(10 * MINUTE, 3)),
        ("{starvation: {after: 10m, perCohort: 0}}", None),
    ],
)
def test_starvation_is_off_until_a_time_is_set(spec: str, expected: Starvation | None):
    text = f"apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {{name: default}}\nspec: {spec}\n"
    objects = parse(text).objects
    assert to_engine(objects).configuration.starvation == expected
    assert advise(objects) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", (MINUTE, 5 * MINUTE, False)),
        ("{nodeFailure: {}}", (MINUTE, 5 * MINUTE, False)),
        ("{nodeFailure: {unhealthyAfter: 90s, waitForReplacement: 0s}}", (90 * MINUTE // 60, 0, False)),
        ("{nodeFailure: {then: Deactivate}}", (MINUTE, 5 * MINUTE, True)),
    ],
)
def test_node_failures_have_defaults(spec: str, expected: tuple[int, int, bool]):
    text = f"apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {{name: default}}\nspec: {spec}\n"
    settings = to_engine(parse(text).objects).settings
    found = (settings.unhealthy_after, settings.wait_for_replacement, settings.deactivate_without_nodes)
    assert found == expected
