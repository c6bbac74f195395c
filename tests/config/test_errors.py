"""Bad files: one row a mistake; each names the line, the object, the field, what is wrong and what would be right."""

# ruff: noqa: E501 - the messages are what is tested

from __future__ import annotations

import textwrap

import pytest

from queue_manager.config.parse import parse, parse_objects
from queue_manager.config.validate import validate

HEAD = "apiVersion: queue-manager.io/v1\n"


def problems(text: str) -> list[str]:
    result = parse(textwrap.dedent(text).lstrip("\n"), "f.yaml")
    return [str(problem) for problem in [*result.errors, *validate(result.objects, result.broken)]]


def queue(spec: str, name: str = "q") -> str:
    """A queue with this spec beginning in line 5, after flavors `f` and `g` (so that lines stay easy to count)."""
    return (
        HEAD
        + f"kind: Queue\nmetadata: {{name: {name}}}\nspec:\n"
        + textwrap.indent(textwrap.dedent(spec), "  ")
        + FLAVORS
    )


FLAVORS = "".join(f"\n---\n{HEAD}kind: Flavor\nmetadata: {{name: {name}}}\n" for name in ("f", "g"))


def quotas(*quota: str, covered: str = "cpu", flavor: str = "f") -> str:
    listed = "".join(f"\n          - {{{each}}}" for each in quota)
    return f"""\
resourceGroups:
  - coveredResources: [{covered}]
    flavors:
      - name: {flavor}
        resources:{listed}
"""


CASES = {
    "one priority for all pods, and no class": (
        HEAD + "kind: Settings\nmetadata: {name: default}\nspec: {podPriority: {policy: Normalize}}\n",
        "f.yaml:4: Settings default: spec.podPriority.className: is missing: policy Normalize gives pods this class (name a PriorityClass of Kubernetes)",
    ),
    "a class that nobody gets": (
        HEAD + "kind: Settings\nmetadata: {name: default}\nspec: {podPriority: {className: x}}\n",
        "f.yaml:4: Settings default: spec.podPriority.className: has no effect with policy Warn (remove it, or set policy: Normalize)",
    ),
    "what becomes of a job without nodes": (
        HEAD + "kind: Settings\nmetadata: {name: default}\nspec: {nodeFailure: {then: Fail}}\n",
        "f.yaml:4: Settings default: spec.nodeFailure.then: 'Fail' is not allowed here (one of Requeue, Deactivate)",
    ),
    "weight of a cohort below 0": (
        HEAD + "kind: Cohort\nmetadata: {name: c}\nspec: {fairSharing: {weight: -0.5}}\n",
        "f.yaml:4: Cohort c: spec.fairSharing.weight: '-0.5' is negative; a weight is at least 0"
        " (write it like 1, 0.5 or 3)",
    ),
    "borrowing limit of a cohort without parent": (
        HEAD
        + "kind: Cohort\nmetadata: {name: c}\nspec:\n"
        + textwrap.indent(quotas("name: cpu, nominalQuota: 1, borrowingLimit: 1"), "  ")
        + FLAVORS,
        "f.yaml:10: Cohort c: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: has no meaning without a"
        " parent (set spec.parent, or remove it)",
    ),
    "cohort that is its own parent": (
        HEAD + "kind: Cohort\nmetadata: {name: a}\nspec: {parent: a}\n",
        "f.yaml:4: Cohort a: spec.parent: cohorts form a cycle: a -> a"
        " (a cohort can't be its own ancestor; remove one parent)",
    ),
    "unknown field": (
        queue("resorceGroups: []"),
        "f.yaml:5: Queue q: spec.resorceGroups: unknown field 'resorceGroups' (did you mean 'resourceGroups'?)",
    ),
    "unknown field deep inside": (
        queue(quotas("name: cpu, nominalQuota: 1, borowingLimit: 2")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].borowingLimit: unknown field 'borowingLimit'"
        " (did you mean 'borrowingLimit'?)",
    ),
    "negative quota": (
        queue(quotas("name: cpu, nominalQuota: -1")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: '-1' is negative; an amount of"
        " cpu is at least 0 (write it like 8, 500m, 1.5 or 64Gi)",
    ),
    "no quantity": (
        queue(quotas("name: cpu, nominalQuota: 5 cores")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: '5 cores' is not a quantity: want"
        " a number with one of the suffixes n u m k M G T P E Ki..Ei (write it like 8, 500m, 1.5 or 64Gi)",
    ),
    "quantity that overflows": (
        queue(quotas("name: cpu, nominalQuota: 1e30")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: 1e30 is too large"
        " (at most 2^63 - 1 base units)",
    ),
    "quantity of thousands of digits": (
        queue(quotas(f"name: cpu, nominalQuota: {'9' * 5000}")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: '99999999999999999999...' has"
        " 5000 characters, a quantity has at most 1000 (write it like 8, 500m, 1.5 or 64Gi)",
    ),
    "whole number of thousands of digits": (
        f"apiVersion: queue-manager.io/v1\nkind: PriorityClass\nmetadata: {{name: p}}\nspec: {{value: -{'9' * 5000}}}",
        "f.yaml:4: PriorityClass p: spec.value: a number of 5000 digits is out of bounds (write one of at most 18 digits)",
    ),
    "text that looks like a fraction": (
        "apiVersion: queue-manager.io/v1\nkind: Cohort\nmetadata: {name: c}\nspec: {parent: 1.10}",
        'f.yaml:4: Cohort c: spec.parent: must be text, is the number 1.10 (put it in quotes: "1.10")',
    ),
    "text of thousands of digits": (
        f"apiVersion: queue-manager.io/v1\nkind: Cohort\nmetadata: {{name: c}}\nspec: {{parent: {'9' * 5000}}}",
        f'f.yaml:4: Cohort c: spec.parent: must be text, is the number {"9" * 60} (put it in quotes: "{"9" * 60}")',
    ),
    "quota left out": (
        queue(quotas("name: cpu")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: is missing"
        " (write one: 8, 500m, 1.5, 64Gi)",
    ),
    "resource in two groups": (
        queue(
            quotas("name: cpu, nominalQuota: 1") + quotas("name: cpu, nominalQuota: 1", flavor="g").split("\n", 1)[1]
        ),
        "f.yaml:11: Queue q: spec.resourceGroups[1].coveredResources[0]: resource 'cpu' is covered in group 0 already"
        " (a resource belongs to one group)",
    ),
    "flavor without one of the covered resources": (
        queue(quotas("name: cpu, nominalQuota: 1", covered="cpu, memory")),
        "f.yaml:9: Queue q: spec.resourceGroups[0].flavors[0].resources: flavor 'f' has no quota for memory"
        " (every flavor of a group lists exactly its coveredResources; write nominalQuota: 0 for none)",
    ),
    "flavor with a resource that is not covered": (
        queue(quotas("name: cpu, nominalQuota: 1", "name: pods, nominalQuota: 1")),
        "f.yaml:11: Queue q: spec.resourceGroups[0].flavors[0].resources[1].name: resource 'pods' is not in"
        " coveredResources (add it there, or remove it here)",
    ),
    "unknown flavor": (
        queue(quotas("name: cpu, nominalQuota: 1", flavor="F")),
        "f.yaml:8: Queue q: spec.resourceGroups[0].flavors[0].name: unknown flavor 'F' (did you mean 'f'?)",
    ),
    "borrowing limit without cohort": (
        queue(quotas("name: cpu, nominalQuota: 1, borrowingLimit: 1")),
        "f.yaml:10: Queue q: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: has no meaning without a cohort"
        " (set spec.cohort, or remove it)",
    ),
    "lends more than it owns": (
        queue("cohort: c\n" + quotas("name: cpu, nominalQuota: 1, lendingLimit: 2")),
        "f.yaml:11: Queue q: spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: 2 is more than the nominalQuota 1"
        " (a queue can lend no more than it owns)",
    ),
    "bad enum": (
        queue("queueingStrategy: StrictFifo"),
        "f.yaml:5: Queue q: spec.queueingStrategy: 'StrictFifo' is not allowed here"
        " (one of StrictFIFO, BestEffortFIFO; did you mean 'StrictFIFO'?)",
    ),
    "a policy of another field": (
        queue("preemption: {reclaimWithinCohort: LowerOrNewerEqualPriority}"),
        "f.yaml:5: Queue q: spec.preemption.reclaimWithinCohort: 'LowerOrNewerEqualPriority' is not allowed here"
        " (one of Never, LowerPriority, Any; did you mean 'LowerPriority'?)",
    ),
    "weight below 0": (
        queue("fairSharing: {weight: -1}"),
        "f.yaml:5: Queue q: spec.fairSharing.weight: '-1' is negative; a weight is at least 0"
        " (write it like 1, 0.5 or 3)",
    ),
    "wrong type": (
        queue("cohort: 5"),
        'f.yaml:5: Queue q: spec.cohort: must be text, is the number 5 (put it in quotes: "5")',
    ),
    "list instead of mapping": (
        queue("preemption: [Never]"),
        "f.yaml:5: Queue q: spec.preemption: must be a mapping, is a list",
    ),
    "both names of one field": (
        queue("cohort: a\ncohortName: b"),
        "f.yaml:6: Queue q: spec.cohortName: cohortName and cohort are two names of one field (keep cohort)",
    ),
    "bad duration": (
        queue("limits: {minRunTime: 90 minutes}"),
        "f.yaml:5: Queue q: spec.limits.minRunTime: '90 minutes' is not a duration; write it like 90m, 36h or 1h30m",
    ),
    "bad label key": (
        queue("namespaceSelector: {matchLabels: {'a b': c}}"),
        "f.yaml:5: Queue q: spec.namespaceSelector.matchLabels[\"a b\"]: 'a b' is not a label key: at most 63 letters,"
        " digits, '-', '_' and '.', optionally after a DNS name and '/'",
    ),
    "key twice": (
        queue("cohort: a\ncohort: b"),
        "f.yaml:6: key 'cohort' is given twice (first in line 5; remove one)",
    ),
    "unicode name": (
        queue("cohort: c", name="Ünïcode"),
        "f.yaml:3: Queue Ünïcode: metadata.name: 'Ünïcode' is not a name: lower-case letters, digits, '-' and '.', in parts"
        " joined by '/' are allowed, a letter or digit first and last",
    ),
    "namespace of a cluster-wide object": (
        HEAD + "kind: Flavor\nmetadata: {name: f, namespace: x}\n",
        "f.yaml:3: Flavor x/f: metadata.namespace: a Flavor belongs to no namespace (remove it)",
    ),
    "unknown kind": (
        HEAD + "kind: Quue\nmetadata: {name: q}\n",
        "f.yaml:2: Quue q: kind: unknown kind 'Quue' (did you mean 'Queue'?)",
    ),
    "another apiVersion": (
        "apiVersion: v1\nkind: Queue\nmetadata: {name: q}\n",
        "f.yaml:1: Queue q: apiVersion: the apiVersion is the text 'v1'"
        " (write queue-manager.io/v1; Kueue's own objects are read too)",
    ),
    "local queue that points nowhere": (
        queue("cohort: c") + f"---\n{HEAD}kind: LocalQueue\nmetadata: {{name: l, namespace: n}}\nspec: {{queue: qq}}\n",
        "f.yaml:19: LocalQueue n/l: spec.queue: unknown queue 'qq' (did you mean 'q'?)",
    ),
    "unknown topology": (
        HEAD + "kind: Flavor\nmetadata: {name: f}\nspec: {topologyName: racks}\n",
        "f.yaml:4: Flavor f: spec.topologyName: unknown topology 'racks' (there is no topology yet)",
    ),
    "host name is not the last level": (
        HEAD + "kind: Topology\nmetadata: {name: t}\nspec:\n  levels:\n"
        "    - nodeLabel: kubernetes.io/hostname\n    - nodeLabel: rack\n",
        "f.yaml:6: Topology t: spec.levels[0].nodeLabel: kubernetes.io/hostname is the narrowest level (put it last)",
    ),
    "cycle": (
        f"{HEAD}kind: Cohort\nmetadata: {{name: a}}\nspec: {{parent: b}}\n---\n"
        f"{HEAD}kind: Cohort\nmetadata: {{name: b}}\nspec: {{parentName: a}}\n",
        "f.yaml:4: Cohort a: spec.parent: cohorts form a cycle: a -> b -> a"
        " (a cohort can't be its own ancestor; remove one parent)",
    ),
    "parent that is no name": (
        HEAD + "kind: Cohort\nmetadata: {name: a}\nspec: {parent: '<b>'}\n",
        "f.yaml:4: Cohort a: spec.parent: '<b>' is not a name: lower-case letters, digits, '-' and '.', in parts joined"
        " by '/' are allowed, a letter or digit first and last",
    ),
    "cohort whose name is too long": (
        HEAD + f"kind: Queue\nmetadata: {{name: a}}\nspec: {{cohort: {'c' * 300}}}\n",
        "f.yaml:4: Queue a: spec.cohort: the name has 300 characters, more than 253",
    ),
    "two objects of one name": (
        f"{HEAD}kind: Flavor\nmetadata: {{name: a}}\n---\n{HEAD}kind: Flavor\nmetadata: {{name: a}}\n",
        "f.yaml:7: Flavor a: metadata.name: is given twice (first in line 1; remove one)",
    ),
    "two nodes of one path": (
        f"{HEAD}kind: Queue\nmetadata: {{name: b}}\nspec: {{cohort: a}}\n---\n{HEAD}kind: Queue\nmetadata: {{name: a/b}}\n",
        "f.yaml:3: Queue b: metadata.name: has the path 'a/b', which Queue a/b has too (rename one of them)",
    ),
    "role in an unknown subtree": (
        queue("cohort: c") + f"---\n{HEAD}kind: RoleBinding\nmetadata: {{name: r}}\n"
        "spec: {role: viewer, subjects: [{kind: User, name: u}], node: c/x}\n",
        "f.yaml:19: RoleBinding r: spec.node: unknown queue or cohort 'c/x' (did you mean 'c/q'?)",
    ),
    "settings of another name": (
        HEAD + "kind: Settings\nmetadata: {name: mine}\n",
        "f.yaml:3: Settings mine: metadata.name: there is only one Settings object, not 'mine' (name it default)",
    ),
    "NUL in a text": (
        HEAD + 'kind: PriorityClass\nmetadata: {name: p}\nspec:\n  value: 1\n  description: "a\\0b"\n',
        "f.yaml:6: PriorityClass p: spec.description: has a NUL character (remove it: no database keeps it)",
    ),
    "NUL in a key": (
        HEAD + 'kind: Flavor\nmetadata: {name: p}\nspec:\n  nodeLabels: {"a\\0": b}\n',
        "f.yaml:5: Flavor p: spec.nodeLabels: the key 'a\\x00' has a NUL character (remove it: no database keeps it)",
    ),
    "backoff above its maximum": (
        HEAD
        + "kind: Settings\nmetadata: {name: default}\n"
        + "spec: {waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: 9, backoffMaxSeconds: 8}}}\n",
        "f.yaml:4: Settings default: spec.waitForPodsReady.requeuingStrategy.backoffBaseSeconds: 9 is more than"
        " backoffMaxSeconds, 8 (lower it, or raise backoffMaxSeconds)",
    ),
    "not YAML": ("a: b: c", "f.yaml:1: not valid YAML: mapping values are not allowed in this context"),
    "no object": ("- 1\n", "f.yaml:1: must be an object, is a list (start with apiVersion)"),
    "control character": (
        "a: \x00",
        "f.yaml: not valid YAML: unacceptable character #x0000: control characters are not allowed in"
        ' "<unicode string>", position 3 (only printable UTF-8 text is allowed)',
    ),
    "deep nesting": ("a: " + "[" * 50_000, "f.yaml: nested too deeply (at most 40 levels are read)"),
    "deep nesting in blocks": ("- " * 50_000 + "a", "f.yaml: nested too deeply (at most 40 levels are read)"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_message(text: str, expected: str):
    assert expected in problems(text)


@pytest.mark.parametrize("name", [name for name in CASES if name != "two nodes of one path"])
def test_one_mistake_is_one_message(name: str):
    text, expected = CASES[name]
    assert problems(text) == [expected]


def test_all_mistakes_are_told_at_once():
    found = problems(
        """
        apiVersion: queue-manager.io/v1
        kind: Queue
        metadata: {name: a}
        spec: {cohrt: x, stopPolicy: Stop}
        ---
        apiVersion: queue-manager.io/v1
        kind: LocalQueue
        metadata: {name: l, namespace: n}
        spec: {queue: a}
        ---
        apiVersion: queue-manager.io/v1
        kind: LocalQueue
        metadata: {name: m, namespace: n}
        spec: {queue: b}
        """
    )
    # `a` is broken, not unknown: only `b` is reported as missing.
    assert [line.split(":")[1] for line in found] == ["4", "4", "14"]


def test_a_document_that_is_no_yaml_hides_no_other_one():
    broken = "a: 'x\n---\n"  # the next document begins where the text was to end
    told = problems(f"a: b: c\n---\n{HEAD}kind: Cohort\nmetadata: {{name: A}}\n---\n{broken}--- b: c: d\n--- x\n")
    assert [text.partition(":")[2].partition(": ")[0] for text in told] == ["1", "8", "9", "5", "10"]
    assert len(problems("a: b: c\n---\n" * 500)) == 20


def test_a_wrong_name_hides_nothing_else_of_its_object():
    text = (
        HEAD
        + "kind: Queue\nmetadata: {name: A}\nspec:\n"
        + textwrap.indent(quotas("name: cpu, nominalQuota: 1, borrowingLimit: 1"), "  ")
    )
    result = parse(text, "f.yaml")
    told = [*result.errors, *validate([*result.objects, *result.partial], result.broken)]
    assert [problem.field.rpartition(".")[2] for problem in told] == ["name", "name", "borrowingLimit"]


def test_two_of_one_name_are_told_where_one_is_wrong():
    text = (
        f"{HEAD}kind: Cohort\nmetadata: {{name: a}}\n---\n{HEAD}kind: Cohort\nmetadata: {{name: a}}\nspec: {{x: 1}}\n"
    )
    assert [problem.message for problem in parse(text).errors] == ["unknown field 'x'", "is given twice"]


def test_alias_bomb_ends_in_a_message():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert problems("\n".join(lines)) == ["f.yaml:1: not valid YAML: too many values by aliases"]


def test_file_of_50_mb_is_refused():
    assert problems("#" * 50_000_000) == ["f.yaml: the file has 50 MB, more than 32 MiB (split it)"]


def test_hostile_json_values_end_in_messages():
    objects = [
        None,
        1,
        "x",
        [],
        {},
        {"apiVersion": {}, "kind": []},
        {"apiVersion": "queue-manager.io/v1", "kind": "Queue"},
    ]
    result = parse_objects(objects)
    assert result.objects == ()
    assert len(result.errors) == len(objects)


def chain(levels: int) -> list[dict[str, object]]:
    """Cohorts one below the other, `c1` at the root, and a queue `q` below all."""
    made: list[dict[str, object]] = [
        {
            "apiVersion": "queue-manager.io/v1",
            "kind": "Cohort",
            "metadata": {"name": f"c{level}"},
            "spec": {"parent": f"c{level - 1}"} if level > 1 else {},
        }
        for level in range(1, levels + 1)
    ]
    last = {"cohort": f"c{levels}", "namespaceSelector": {}}
    bottom = {"apiVersion": "queue-manager.io/v1", "kind": "Queue", "metadata": {"name": "q"}, "spec": last}
    return [*made, bottom]


def test_cohorts_may_have_32_levels():
    assert validate(parse_objects(chain(32)).objects) == []


@pytest.mark.parametrize("levels", [33, 20_000])
def test_a_deeper_chain_of_cohorts_is_one_problem_that_names_cohort_and_limit(levels: int):
    [problem] = validate(parse_objects(chain(levels)).objects)
    assert (problem.kind, problem.name, problem.field) == ("Cohort", "c33", "spec.parent")
    assert problem.message == "cohort 'c33' is at level 33 of the tree, at most 32 are allowed"


def test_half_a_surrogate_pair_is_refused():
    spec = {"value": 1, "description": "a\ud800"}
    content = {"apiVersion": "queue-manager.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "spec": spec}
    [problem] = parse_objects([content]).errors
    assert (problem.field, problem.message) == (
        "spec.description",
        "has half a surrogate pair, which is no character",
    )
