"""What is refused, with a message that names the field, and what only draws a warning."""

from dataclasses import dataclass

import pytest

from queue_manager.webhook.review import User
from tests.webhook.fakes import ALICE, ALICE_ANNOTATIONS, OURSELVES, TEAM_QUEUE, create, decider, job, owner_of, update

LABEL = "metadata.labels[queue-manager.io/queue]"
PREFIX = "queue-manager.io/"


@dataclass
class Finding:
    field: str
    message: str
    severity: str


def labelled(queue: str, **more):
    return job(labels={PREFIX + "queue": queue}, **more)


@pytest.mark.parametrize("queue", ["team", "default", "research"])
def test_known_queue_passes_without_a_word(queue):
    verdict = decider().validate(create(labelled(queue)))
    assert (verdict.refused, verdict.warnings) == ("", ())


@pytest.mark.parametrize("queue", ["", "Team", "a_b", "theirs."])
def test_value_that_is_no_queue_name_is_refused(queue):
    refused = decider().validate(create(labelled(queue))).refused
    assert refused.startswith(LABEL + ": ")


def test_unknown_queue_is_a_warning_with_the_nearest_name():
    verdict = decider().validate(create(labelled("teem")))
    assert verdict.allowed
    assert verdict.warnings == (
        f"{LABEL}: there is no queue 'teem', the job waits until there is one; did you mean 'team'?",
    )


def test_local_queue_of_another_namespace_is_unknown_here():
    assert decider().validate(create(labelled("theirs"))).warnings


def test_without_a_readable_configuration_nothing_is_called_unknown():
    verdict = decider(catalogue=None).validate(
        create(labelled("teem", annotations={PREFIX + "required-topology": "x"}))
    )
    assert verdict.allowed
    assert verdict.warnings == ()


def test_unmanaged_job_is_not_looked_at():
    assert decider().validate(create(job(annotations={PREFIX + "required-topology": "nonsense"}))).allowed


def test_priority_class_is_checked():
    bad = labelled("team")
    bad["metadata"]["labels"][PREFIX + "priority-class"] = "HIGH!"
    unknown = labelled("team")
    unknown["metadata"]["labels"][PREFIX + "priority-class"] = "hihg"
    assert decider().validate(create(bad)).refused.startswith("metadata.labels[queue-manager.io/priority-class]: ")
    assert "did you mean 'high'?" in decider().validate(create(unknown)).warnings[0]


@pytest.mark.parametrize(
    ("annotation", "value", "refused"),
    [
        ("required-topology", "topology/rack", False),
        ("required-topology", "topology/rak", True),
        ("slice-topology", "topology/block, topology/rack", False),
        ("slice-topology", "topology/block,topology/row", True),
        ("exclusive-topology", "topology/row", True),
    ],
)
def test_topology_level_that_no_topology_has(annotation, value, refused):
    verdict = decider().validate(create(labelled("team", annotations={PREFIX + annotation: value})))
    if refused:
        assert verdict.refused.startswith(f"metadata.annotations[{PREFIX}{annotation}]: ")
    else:
        assert verdict.allowed


def test_unknown_preferred_level_is_a_warning():
    verdict = decider().validate(create(labelled("team", annotations={PREFIX + "preferred-topology": "topology/row"})))
    assert verdict.allowed
    assert "is no level of any topology" in verdict.warnings[0]


def test_level_on_a_pod_template_is_named_by_its_path():
    obj = labelled("team")
    template = {"metadata": {"annotations": {PREFIX + "required-topology": "nope"}}}
    obj["spec"]["replicatedJobs"] = [{"name": "a"}, {"name": "b", "template": {"spec": {"template": template}}}]
    refused = decider().validate(create(obj)).refused
    assert refused.startswith(
        "spec.replicatedJobs[1].template.spec.template.metadata.annotations[queue-manager.io/required-topology]: "
    )


def test_findings_of_the_kind_are_passed_on():
    findings = [
        Finding("metadata.annotations[queue-manager.io/min-count]", "a TrainJob cannot shrink", "error"),
        Finding("metadata.annotations[queue-manager.io/balanced]", "no effect", "warning"),
    ]
    verdict = decider(check=lambda obj, lookup: findings).validate(create(labelled("team")))
    assert verdict.refused == "metadata.annotations[queue-manager.io/min-count]: a TrainJob cannot shrink"
    assert verdict.warnings == ("metadata.annotations[queue-manager.io/balanced]: no effect",)


class TestQueueOfAnAdmittedJob:
    RUNNING = labelled("team", suspend=False, annotations=ALICE_ANNOTATIONS)
    MOVED = labelled("research", suspend=False, annotations=ALICE_ANNOTATIONS)

    def test_is_not_changed_by_its_user(self):
        refused = decider().validate(update(self.RUNNING, self.MOVED)).refused
        assert refused.startswith(f"{LABEL}: the job is admitted from queue 'team'")
        assert "`queue-manager move ml/job-1`" in refused

    def test_is_not_changed_together_with_suspending(self):
        new = labelled("research", suspend=True, annotations=ALICE_ANNOTATIONS)
        assert decider().validate(update(self.RUNNING, new)).refused

    def test_is_changed_by_our_move(self):
        assert decider().validate(update(self.RUNNING, self.MOVED, User(OURSELVES))).allowed

    def test_label_is_not_removed(self):
        new = job(suspend=False, annotations=ALICE_ANNOTATIONS)
        assert decider().validate(update(self.RUNNING, new)).refused.startswith(LABEL)

    def test_label_named_default_may_go_in_a_managed_namespace(self):
        old = labelled("default", suspend=False, annotations=ALICE_ANNOTATIONS)
        new = job(suspend=False, annotations=ALICE_ANNOTATIONS)
        assert decider().validate(update(old, new, managed=True)).allowed

    def test_priority_class_may_change_and_counts_later(self):
        new = labelled("team", suspend=False, annotations=ALICE_ANNOTATIONS)
        new["metadata"]["labels"][PREFIX + "priority-class"] = "high"
        verdict = decider().validate(update(self.RUNNING, new))
        assert verdict.allowed
        [warning] = [text for text in verdict.warnings if "keeps its priority class" in text]
        assert warning.startswith("metadata.labels[queue-manager.io/priority-class]: ")
        assert "`queue-manager reprioritise ml/job-1`" in warning
        suspended = labelled("team", suspend=True, annotations=ALICE_ANNOTATIONS)
        changed = {**suspended, "metadata": {**suspended["metadata"], "labels": new["metadata"]["labels"]}}
        assert "keeps its" not in str(decider().validate(update(suspended, changed)).warnings)

    def test_waiting_job_may_change_it(self):
        old = labelled("team", suspend=True)
        assert decider().validate(update(old, labelled("research", suspend=True))).allowed

    def test_finished_job_may_change_it(self):
        old = self.RUNNING | {"status": {"done": True}}
        assert decider().validate(update(old, self.MOVED)).allowed

    def test_running_unmanaged_job_is_not_put_into_a_queue(self):
        refused = decider().validate(update(job(suspend=False), labelled("team", suspend=False))).refused
        assert "suspend it first" in refused

    def test_other_updates_pass(self):
        new = labelled("team", suspend=False, annotations=ALICE_ANNOTATIONS | {"note": "x"})
        verdict = decider().validate(update(self.RUNNING, new))
        assert (verdict.refused, verdict.warnings) == ("", ())


class TestUserOfAJob:
    OLD = labelled("team", suspend=True, annotations=ALICE_ANNOTATIONS)

    @pytest.mark.parametrize("key", ["user", "user-groups"])
    @pytest.mark.parametrize("value", ["bob", None])
    def test_never_changes(self, key, value):
        changed = {k: v for k, v in (ALICE_ANNOTATIONS | {PREFIX + key: value}).items() if v is not None}
        verdict = decider().validate(update(self.OLD, labelled("team", suspend=True, annotations=changed)))
        assert verdict.refused.startswith(f"metadata.annotations[{PREFIX}{key}]: ")

    def test_is_written_by_ourselves_and_by_trusted_controllers(self):
        new = labelled("team", suspend=True, annotations={PREFIX + "user": "bob"})
        for name in (OURSELVES, "system:serviceaccount:pipelines:runner"):
            assert decider().validate(update(self.OLD, new, User(name))).allowed

    def test_is_not_smuggled_in_before_the_job_becomes_managed(self):
        forged = {PREFIX + "user": "bob"}
        old = job(suspend=True, annotations=forged)
        verdict = decider().validate(update(old, labelled("team", suspend=True, annotations=forged)))
        assert verdict.refused.startswith("metadata.annotations[queue-manager.io/user]: ")

    def test_may_name_oneself_when_the_job_becomes_managed(self):
        old = job(suspend=True)
        for annotations in (None, ALICE_ANNOTATIONS):
            new = labelled("team", suspend=True, annotations=annotations)
            assert decider().validate(update(old, new, ALICE)).allowed


def test_what_was_wrong_before_does_not_block_other_updates():
    wrong = {PREFIX + "required-topology": "nope"}
    old = labelled("team", suspend=True, annotations=wrong)
    assert decider().validate(update(old, labelled("team", suspend=True, annotations=wrong | {"note": "x"}))).allowed
    worse = wrong | {PREFIX + "exclusive-topology": "nope"}
    refused = decider().validate(update(old, labelled("team", suspend=True, annotations=worse))).refused
    assert "exclusive-topology" in refused
    assert "required-topology" not in refused


def test_object_on_its_way_out_is_never_held_up():
    old = labelled("team", suspend=False)
    new = labelled("Nonsense!", suspend=False, deletionTimestamp="2026-11-29T00:00:00Z")
    assert decider().validate(update(old, new)).allowed


def test_unsuspending_a_waiting_job_draws_a_warning():
    old, new = labelled("team", suspend=True), labelled("team", suspend=False)
    verdict = decider().validate(update(old, new))
    assert verdict.allowed
    assert verdict.warnings[0].startswith("spec.suspend: ")


def test_owner_reference_added_later_hides_nothing():
    parent = job("parent", kind="TrainJob", labels=TEAM_QUEUE, uid="u-1")
    old = labelled("team", suspend=False)
    new = labelled("research", suspend=False, owner=owner_of(parent))
    assert decider(parent).validate(update(old, new)).refused
