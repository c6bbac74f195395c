"""Spread constraints and pod (anti-)affinity of pod templates: what is planned, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.engine.workload import PodRules, SpreadRule
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.names import REQUIRED
from queue_manager.kinds.pod_rules import MOST_DOMAINS
from queue_manager.kinds.pod_template import MOST_PODS
from tests.kinds.world import World, container, job, job_set, pod_template, replicated_job

APP = {"matchLabels": {"app": "train"}}
JOB_NAME = {"matchLabels": {"batch.kubernetes.io/job-name": "job"}}


def template(*constraints: Any, labels: Any = None, together: Any = (), apart: Any = (), **spec: Any) -> Any:
    affinity = {"podAffinity": {REQUIRED: list(together)}, "podAntiAffinity": {REQUIRED: list(apart)}}
    made = pod_template(container("main"), topologySpreadConstraints=list(constraints), affinity=affinity, **spec)
    made.setdefault("metadata", {})["labels"] = labels or {"app": "train"}
    return made


def constraint(selector: Any = APP, key: str = "zone", skew: int = 1, **more: Any) -> Any:
    found = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return found if selector is None else found | {"labelSelector": selector}


def term(selector: Any = APP, key: str = "kubernetes.io/hostname", **more: Any) -> Any:
    return {"topologyKey": key, "labelSelector": selector, **more}


def rules(made: Any) -> PodRules:
    resource, obj = job(made)
    return JobKind().resolve(obj, World((resource, obj))).pod_groups[0].pod_sets[0].rules


def warnings(made: Any) -> tuple[str, ...]:
    resource, obj = job(made)
    return JobKind().resolve(obj, World((resource, obj))).messages


def in_job_set(*made: Any, replicas: int = 1) -> list[PodRules]:
    names = "ab"
    jobs = [replicated_job(names[i], one, replicas=replicas, parallelism=2) for i, one in enumerate(made)]
    resource, obj = job_set(*jobs)
    resolved = JobSetKind().resolve(obj, World((resource, obj)))
    return [pod_set.rules for group in resolved.pod_groups for pod_set in group.pod_sets]


def refused(made: Any) -> str:
    with pytest.raises(Unresolvable) as caught:
        rules(made)
    assert caught.value.message.startswith(caught.value.field)
    return caught.value.message


class TestSpread:
    def test_constraints_that_are_enforced_are_read(self) -> None:
        soft = constraint(key="rack", whenUnsatisfiable="ScheduleAnyway")
        hard = constraint(skew=2, minDomains=3, nodeTaintsPolicy="Honor")
        assert rules(template(soft, hard)).spread == (SpreadRule("zone", 2, 3, True),)

    def test_domains_out_of_reach_count_as_empty_where_affinity_is_ignored(self) -> None:
        assert rules(template(constraint(nodeAffinityPolicy="Ignore"))).spread == (SpreadRule("zone", 1, MOST_DOMAINS),)

    def test_without_a_selector_it_only_wants_the_label(self) -> None:
        assert rules(template(constraint(None))).spread == (SpreadRule("zone", MOST_PODS),)

    def test_expressions_and_labels_that_the_job_controller_adds(self) -> None:
        expression = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["other"]}]}
        assert len(rules(template(constraint(expression), constraint(JOB_NAME, "rack"))).spread) == 2

    def test_match_label_keys(self) -> None:
        keys = ["app", "pod-template-hash", "batch.kubernetes.io/controller-uid"]
        assert rules(template(constraint(matchLabelKeys=keys))).spread == (SpreadRule("zone", 1),)

    def test_one_about_pods_of_others_is_refused(self) -> None:
        assert refused(template(constraint({"matchLabels": {"app": "web"}}))) == (
            "spec.template.spec.topologySpreadConstraints[0].labelSelector selects none of the pods of this template, "
            "so it is about pods of others: take it away, or select labels of this template"
        )

    def test_a_skew_of_nothing_is_malformed(self) -> None:
        assert "maxSkew must be one or more" in refused(template(constraint(skew=0)))


class TestAffinity:
    def test_terms_about_its_own_pods(self) -> None:
        made = template(together=[term(key="zone")], apart=[term(), term()])
        assert rules(made) == PodRules(together=("zone",), apart=("kubernetes.io/hostname",))

    def test_preferred_terms_are_no_rules(self) -> None:
        made = template()
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term()}]}
        made["spec"]["affinity"] = {"podAntiAffinity": preferred, "podAffinity": preferred}
        assert rules(made) == PodRules()

    def test_no_selector_is_about_no_pods(self) -> None:
        assert rules(template(apart=[term(None)])) == PodRules()
        assert "podAffinity" in refused(template(together=[term(None)]))

    def test_namespaces(self) -> None:
        assert rules(template(apart=[term(namespaceSelector={})])).apart
        assert rules(template(apart=[term(namespaces=["other", "team"])])).apart
        assert "is about pods of other namespaces than team" in refused(template(apart=[term(namespaces=["other"])]))
        by_labels = refused(template(apart=[term(namespaceSelector={"matchLabels": {"a": "b"}})]))
        assert "list them in `namespaces`" in by_labels

    def test_terms_about_pods_of_others_are_refused(self) -> None:
        assert "podAntiAffinity" in refused(template(apart=[term({"matchLabels": {"app": "noisy"}})]))
        assert "mismatchLabelKeys keeps the pods apart" in refused(template(apart=[term(mismatchLabelKeys=["app"])]))

    def test_each_pod_apart_from_itself_says_nothing(self) -> None:
        key = "batch.kubernetes.io/job-completion-index"
        assert "take it away" in refused(template(apart=[term(matchLabelKeys=[key])]))
        index = {"matchLabels": {key: "0"}}
        assert "not known before there are pods" in refused(template(apart=[term(index)]))

    def test_labels_that_other_jobs_may_have_are_warned_of(self) -> None:
        (found,) = warnings(template(apart=[term()]))
        assert "podAntiAffinity" in found
        assert "may select pods of other jobs too" in found
        assert warnings(template(apart=[term(JOB_NAME), term(matchLabelKeys=["job-name"])])) == ()


class TestJobSets:
    def test_selectors_of_the_labels_that_jobset_adds(self) -> None:
        own = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "a"}}
        assert in_job_set(template(apart=[term(own)]), template()) == [
            PodRules(apart=("kubernetes.io/hostname",)),
            PodRules(),
        ]

    def test_a_selector_of_several_pod_sets_is_refused(self) -> None:
        with pytest.raises(Unresolvable, match="selects the pods of b too: add a label that only a has"):
            in_job_set(template(apart=[term()]), template())
        keys = ["jobset.sigs.k8s.io/replicatedjob-name"]
        assert in_job_set(template(apart=[term(matchLabelKeys=keys)]), template())[0].apart

    def test_child_jobs_by_themselves(self) -> None:
        keys = ["batch.kubernetes.io/job-name"]
        one = template(constraint(matchLabelKeys=keys), together=[term(matchLabelKeys=keys)])
        assert in_job_set(one)[0] == PodRules((SpreadRule("zone", 1),), ("kubernetes.io/hostname",))
        with pytest.raises(Unresolvable, match="spreads the pods of each child Job by themselves"):
            in_job_set(template(constraint(matchLabelKeys=keys)), replicas=2)
        with pytest.raises(Unresolvable, match="slice-topology and slice-size"):
            in_job_set(template(together=[term(matchLabelKeys=keys)]), replicas=2)
        assert in_job_set(template(apart=[term(matchLabelKeys=keys)]), replicas=2)[0].apart

    def test_the_name_of_an_only_child_is_known(self) -> None:
        named = {"matchLabels": {"job-name": "set-a-0"}}
        assert in_job_set(template(apart=[term(named)]))[0].apart
        with pytest.raises(Unresolvable, match="use matchLabelKeys"):
            in_job_set(template(apart=[term(named)]), replicas=2)
