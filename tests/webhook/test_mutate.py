"""What a managed job looks like after its creation."""

from dataclasses import replace

import pytest

from queue_manager.webhook.review import User
from tests.webhook.fakes import (
    ALICE,
    ALICE_ANNOTATIONS,
    CATALOGUE,
    TEAM_QUEUE,
    create,
    decider,
    job,
    owner_of,
    patched,
    update,
)

COMPONENT = User("system:serviceaccount:kubeflow-system:trainer")
PIPELINE = User("system:serviceaccount:pipelines:runner", ("system:serviceaccounts",))


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob"])
def test_managed_job_is_suspended_and_carries_who_asked(kind):
    obj = job(kind=kind, labels=TEAM_QUEUE)
    verdict = decider().mutate(create(obj))
    result = patched(obj, verdict.patch)
    assert verdict.allowed
    assert result["spec"]["suspend"] is True
    assert result["metadata"]["annotations"] == ALICE_ANNOTATIONS
    assert result["metadata"]["labels"] == TEAM_QUEUE


def test_second_call_on_the_result_changes_nothing():
    obj = job(labels=TEAM_QUEUE)
    result = patched(obj, decider().mutate(create(obj)).patch)
    assert decider().mutate(create(result)).patch == []


def test_job_without_label_is_left_alone():
    assert decider().mutate(create(job())).patch == []


def test_job_without_label_in_a_managed_namespace_gets_the_default_queue():
    obj = job(labels={"app": "x"})
    result = patched(obj, decider().mutate(create(obj, managed=True)).patch)
    assert result["metadata"]["labels"] == {"app": "x", "queue-manager.io/queue": "default"}
    assert result["spec"]["suspend"] is True


def test_job_that_names_its_queue_in_a_managed_namespace_keeps_it():
    obj = job(labels=TEAM_QUEUE)
    result = patched(obj, decider().mutate(create(obj, managed=True)).patch)
    assert result["metadata"]["labels"] == TEAM_QUEUE


def test_only_creations_are_changed():
    obj = job(labels=TEAM_QUEUE)
    assert decider().mutate(update(obj, obj)).patch == []


def test_a_clients_own_user_is_overwritten():
    obj = job(labels=TEAM_QUEUE, annotations={"queue-manager.io/user": "the-boss", "keep": "this"})
    result = patched(obj, decider().mutate(create(obj)).patch)
    assert result["metadata"]["annotations"] == ALICE_ANNOTATIONS | {"keep": "this"}


def test_group_names_with_commas_stay_apart():
    obj = job(labels=TEAM_QUEUE)
    user = User("alice", ("CN=a,OU=b", "50%"))
    result = patched(obj, decider().mutate(create(obj, user)).patch)
    assert result["metadata"]["annotations"]["queue-manager.io/user-groups"] == "CN=a%2COU=b,50%25"


def test_state_of_the_job_it_was_copied_from_is_dropped():
    told = {"queue-manager.io/state": "running", "queue-manager.io/message": "x", "queue-manager.io/min-count": "2"}
    obj = job(labels=TEAM_QUEUE, annotations=told)
    result = patched(obj, decider().mutate(create(obj)).patch)
    assert result["metadata"]["annotations"] == ALICE_ANNOTATIONS | {"queue-manager.io/min-count": "2"}


def test_a_trusted_controller_passes_the_user_it_acts_for():
    obj = job(labels=TEAM_QUEUE, annotations={"queue-manager.io/user": "bob"})
    result = patched(obj, decider().mutate(create(obj, PIPELINE)).patch)
    assert result["metadata"]["annotations"] == {"queue-manager.io/user": "bob"}


def test_a_trusted_controller_that_names_nobody_stands_for_itself():
    obj = job(labels=TEAM_QUEUE)
    result = patched(obj, decider().mutate(create(obj, PIPELINE)).patch)
    assert result["metadata"]["annotations"]["queue-manager.io/user"] == PIPELINE.username


def test_a_body_without_namespace_and_with_null_maps_is_understood():
    obj = job()
    del obj["metadata"]["namespace"]
    obj["metadata"] |= {"labels": None, "annotations": None}
    result = patched(obj, decider().mutate(create(obj, managed=True)).patch)
    assert result["metadata"]["annotations"] == ALICE_ANNOTATIONS


class TestChildren:
    """A child whose owner is a job of ours is left alone (workloads.md D10), but an owner must not be invented."""

    PARENT = job("parent", kind="TrainJob", labels=TEAM_QUEUE, uid="u-1")

    def child(self, parent=PARENT, **changed):
        return job("parent", kind="JobSet", labels=TEAM_QUEUE, owner=owner_of(parent) | changed)

    @pytest.mark.parametrize("user", [ALICE, COMPONENT])
    def test_child_of_a_known_owner(self, user):
        assert decider(self.PARENT).mutate(create(self.child(), user)).patch == []

    def test_owner_that_the_cache_does_not_show_yet_is_believed_from_a_component(self):
        assert decider().mutate(create(self.child(), COMPONENT)).patch == []

    def test_owner_that_nobody_knows_is_not_believed_from_a_person(self):
        assert decider().mutate(create(self.child(), ALICE)).patch

    @pytest.mark.parametrize("user", [ALICE, COMPONENT])
    def test_owner_with_another_uid_is_not_believed(self, user):
        assert decider(self.PARENT).mutate(create(self.child(uid="u-0"), user)).patch

    def test_owner_that_is_not_the_controller(self):
        assert decider(self.PARENT).mutate(create(self.child(controller=False))).patch

    def test_owner_of_a_kind_we_do_not_manage(self):
        child = self.child(kind="CronJob", apiVersion="batch/v1")
        assert decider().mutate(create(child, COMPONENT)).patch

    def test_owner_that_is_not_managed_itself_answers_for_nobody(self):
        parent = job("parent", kind="TrainJob", uid="u-1")
        assert decider(parent).mutate(create(self.child(parent))).patch

    def test_grandchild(self):
        middle = job("parent", kind="JobSet", uid="u-2", owner=owner_of(self.PARENT))
        leaf = job("leaf", labels=TEAM_QUEUE, owner=owner_of(middle))
        assert decider(self.PARENT, middle).mutate(create(leaf)).patch == []

    def test_ring_of_owners_ends(self):
        one = job("one", uid="u-1", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "two", "uid": "u-2"})
        one["metadata"]["ownerReferences"][0]["controller"] = True
        two = job("two", uid="u-2", owner=owner_of(one))
        child = job("child", labels=TEAM_QUEUE, owner=owner_of(two))
        assert decider(one, two).mutate(create(child)).patch


ONE_PRIORITY = replace(CATALOGUE, pod_priority_class="training")
GIVEN = "queue-manager.io/pod-priority-class"


def template(**spec):
    return {"spec": {"containers": [{"name": "main", "image": "example"}], **spec}}


def normalised(obj):
    return patched(obj, decider(catalogue=ONE_PRIORITY).mutate(create(obj)).patch)


def test_pods_of_a_job_get_the_one_priority_and_the_given_class_is_remembered():
    obj = job(labels=TEAM_QUEUE)
    obj["spec"]["template"] = template(priorityClassName="urgent", preemptionPolicy="PreemptLowerPriority", priority=9)
    result = normalised(obj)
    spec = result["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "training"
    assert "priority" not in spec
    assert "preemptionPolicy" not in spec
    assert result["metadata"]["annotations"][GIVEN] == "urgent"
    assert decider(catalogue=ONE_PRIORITY).mutate(create(result)).patch == []


def test_pods_without_a_class_get_it_too():
    obj = job(labels=TEAM_QUEUE)
    obj["spec"]["template"] = template()
    result = normalised(obj)
    assert result["spec"]["template"]["spec"]["priorityClassName"] == "training"
    assert GIVEN not in result["metadata"]["annotations"]


def test_every_template_of_a_job_set_gets_the_one_priority():
    obj = job(kind="JobSet", labels=TEAM_QUEUE)
    pods = [template(), template(priorityClassName="urgent"), template(priorityClassName="training")]
    jobs = [{"name": f"j{number}", "template": {"spec": {"template": made}}} for number, made in enumerate(pods)]
    obj["spec"]["replicatedJobs"] = jobs
    result = normalised(obj)
    made = [entry["template"]["spec"]["template"]["spec"] for entry in result["spec"]["replicatedJobs"]]
    assert [spec["priorityClassName"] for spec in made] == ["training"] * 3
    assert result["metadata"]["annotations"][GIVEN] == "urgent"


def test_a_train_job_and_jobs_without_that_setting_keep_their_priority():
    obj = job(labels=TEAM_QUEUE)
    obj["spec"]["template"] = template(priorityClassName="urgent")
    result = patched(obj, decider().mutate(create(obj)).patch)
    assert result["spec"]["template"]["spec"]["priorityClassName"] == "urgent"
    train_job = job(kind="TrainJob", labels=TEAM_QUEUE)
    assert normalised(train_job) == patched(train_job, decider().mutate(create(train_job)).patch)
