"""What a pod template demands of the places of its own pods: topology spread constraints and pod (anti-)affinity.

Read as kube-scheduler does (PodTopologySpread, InterPodAffinity); only what it enforces counts. A rule holds among the
pods of one pod set. One that speaks of other pods can't be planned, so it is refused with what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from queue_manager.engine.selectors import meets
from queue_manager.engine.workload import PodRules, Requirement, SpreadRule
from queue_manager.kinds.fields import View
from queue_manager.kinds.gates import INDEX_LABEL, JOB_INDEX_LABEL
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.names import CONTROLLER_UID, JOB_NAME, JOB_SET, JOB_SET_NAME, REPLICATED_JOB_NAME, REQUIRED
from queue_manager.kinds.pod_template import MOST_PODS

UNPLANNABLE = "PodRulesOfOthers"
MOST_DOMAINS = 1 << 31
"""As `minDomains`: more than there are, so that the fewest counts as 0. With `nodeAffinityPolicy: Ignore` domains that
the pods can't use count as empty ones."""
JOB_NAMES = (JOB_NAME, "job-name")
CONTROLLER_UIDS = (CONTROLLER_UID, "controller-uid")
_JOB_KEY, _JOB_SET_UID = JOB_SET + "job-key", JOB_SET + "jobset-uid"
BY_CHILD = (*CONTROLLER_UIDS, _JOB_KEY, JOB_INDEX_LABEL, JOB_SET + "job-global-index")
OF_ALL = (_JOB_SET_UID, *(JOB_SET + n for n in ("restart-attempt", "global-replicas", "replicatedjob-replicas")))
OF_ONE_JOB = frozenset((*JOB_NAMES, *CONTROLLER_UIDS, JOB_SET_NAME, _JOB_SET_UID, _JOB_KEY))
"""Labels whose values no two jobs share."""
_TELLS_APART = f"add matchLabelKeys with {JOB_NAME} (Job) or {JOB_SET_NAME}"


@dataclass(frozen=True, slots=True)
class PodLabels:
    """The labels that all pods of a pod set will have. Those of `by_job` have one value in each child Job, of `by_pod`
    one in each pod; `unknown` have one value in all, which nobody knows yet. `of_one` are those whose values no two
    workloads share, `advice` says how to ask for one of them ("" where there is none)."""

    known: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    by_job: frozenset[str] = frozenset()
    by_pod: frozenset[str] = frozenset()
    of_one: frozenset[str] = OF_ONE_JOB
    advice: str = _TELLS_APART

    @classmethod
    def of_job(cls, template: View, name: str) -> PodLabels:
        """Of the pods of a Job."""
        own = dict.fromkeys(JOB_NAMES, name) if name else {}
        return cls(
            template["metadata"]["labels"].texts() | own,
            frozenset(CONTROLLER_UIDS) | frozenset(() if name else JOB_NAMES),
            by_pod=frozenset((INDEX_LABEL,)),
        )

    @classmethod
    def of_replicated_job(cls, template: View, job_set: str, name: str, replicas: int) -> PodLabels:
        """Of the pods of a replicated job of a JobSet."""
        own = {REPLICATED_JOB_NAME: name} | ({JOB_SET_NAME: job_set} if job_set else {})
        unknown, by_job = {*OF_ALL, *(() if job_set else (JOB_SET_NAME,))}, {*BY_CHILD, *JOB_NAMES}
        if replicas == 1:
            if job_set:
                own |= dict.fromkeys(JOB_NAMES, f"{job_set}-{name}-0")
            unknown, by_job = unknown | by_job, set()
        known = template["metadata"]["labels"].texts() | own
        return cls(known, frozenset(unknown - known.keys()), frozenset(by_job), frozenset((INDEX_LABEL,)))

    def value_known(self, key: str) -> bool:
        """Whether all pods have one value of a label, or all have none."""
        return key not in self.unknown | self.by_job | self.by_pod


_KEY_LISTS = ("matchLabelKeys", "mismatchLabelKeys")
NO_OTHERS: Mapping[str, PodLabels] = {}


@dataclass(frozen=True, slots=True)
class RulesFound:
    """The rules of a pod template, and what its user should know."""

    rules: PodRules
    messages: tuple[str, ...]


def asked_labels(spec: View) -> frozenset[str]:
    """The keys of labels that the rules of a pod spec ask for. Raises Unresolvable."""
    spread = spec["topologySpreadConstraints"].items()
    rules = [rule for rule in spread if rule["whenUnsatisfiable"].text() != "ScheduleAnyway"]
    for kind in ("podAffinity", "podAntiAffinity"):
        rules += spec.at("affinity", kind, REQUIRED).items()
    selected = (requirement.key for rule in rules for requirement in _requirements(rule["labelSelector"]))
    named = (key.text() for rule in rules for listed in _KEY_LISTS for key in rule[listed].items())
    return frozenset((*selected, *named))


def pod_rules(
    spec: View, namespace: str, name: str, labels: PodLabels, others: Mapping[str, PodLabels] = NO_OTHERS
) -> RulesFound:
    """The rules of a pod spec in a namespace; `others` are the labels of the workload's other pod sets. Raises
    Unresolvable."""
    reader = _Reader(namespace, name, labels, others)
    spread = tuple(rule for view in spec["topologySpreadConstraints"].items() for rule in reader.spread(view))
    together, apart = (
        tuple(
            dict.fromkeys(
                key for term in spec.at("affinity", kind, REQUIRED).items() for key in reader.term(term, kind)
            )
        )
        for kind in ("podAffinity", "podAntiAffinity")
    )
    return RulesFound(PodRules(spread, together, apart), tuple(reader.messages))


@dataclass(frozen=True, slots=True)
class _Reader:
    namespace: str
    name: str
    labels: PodLabels
    others: Mapping[str, PodLabels]
    messages: list[str] = field(default_factory=list)

    def spread(self, view: View) -> Iterable[SpreadRule]:
        """A topology spread constraint."""
        if view["whenUnsatisfiable"].text() == "ScheduleAnyway":
            return ()
        key, skew = self._key(view), view["maxSkew"].integer(0)
        if skew < 1:
            raise view["maxSkew"].malformed("one or more")
        if not view["labelSelector"].given:
            return (SpreadRule(key, MOST_PODS),)  # it counts no pods, and wants nodes with the label
        self._own(view, view["matchLabelKeys"], View(None))
        everywhere = view["nodeAffinityPolicy"].text() == "Ignore"
        domains = MOST_DOMAINS if everywhere else view["minDomains"].count(0)
        return (SpreadRule(key, skew, domains, view["nodeTaintsPolicy"].text() == "Honor"),)

    def term(self, view: View, kind: str) -> Iterable[str]:
        """The label key of a required term of pod affinity or anti-affinity."""
        key = self._key(view)
        if not view["labelSelector"].given and kind == "podAntiAffinity":
            return ()  # it is about no pods
        spaces, selector = view["namespaces"], view["namespaceSelector"]
        listed = [space.text() for space in spaces.items()]
        if selector.given and not selector.mapping():
            listed.append(self.namespace)  # an empty selector selects every namespace
        elif selector.given:
            raise self._refusal(selector, "chooses namespaces by their labels: list them in `namespaces`")
        elif not listed:
            listed.append(self.namespace)
        if self.namespace not in listed:
            raise self._refusal(spaces, f"is about pods of other namespaces than {self.namespace}: take the term away")
        by_job = self._own(view, view["matchLabelKeys"], view["mismatchLabelKeys"])
        if by_job and kind == "podAffinity":
            what = (
                "keeps the pods of each child Job together: say that with the annotations slice-topology and slice-size"
            )
            raise self._refusal(view, f"{what}, or exclusive-topology, of queue-manager.io")
        return (key,)

    def _key(self, view: View) -> str:
        key = view["topologyKey"].text()
        if not key:
            raise view["topologyKey"].malformed("given")
        return key

    def _own(self, view: View, same: View, different: View) -> bool:
        """Checks that a selector selects the pod set's own pods and no others of the workload; says whether only those
        of the same child Job."""
        requirements = list(_requirements(view["labelSelector"]))
        keys = [key.text() for key in same.items() if self._has(key.text())]  # others are ignored
        self._refuse_varying(view, keys, requirements)
        if any(self._has(key.text()) for key in different.items()):
            raise self._refusal(different, "keeps the pods apart from those that differ: it is about pods of others")
        if not view["labelSelector"].given or not _selects(requirements, self.labels):
            about = "selects none of the pods of this template, so it is about pods of others"
            raise self._refusal(view["labelSelector"], f"{about}: take it away, or select labels of this template")
        for other, labels in sorted(self.others.items()):
            equal = all(labels.known.get(key) == self.labels.known.get(key) for key in keys)
            if equal and _selects(requirements, labels):
                about = f"selects the pods of {other} too: add a label that only {self.name} has"
                raise self._refusal(view["labelSelector"], about)
        asked = {requirement.key for requirement in requirements if requirement.operator == "In"}
        if not self.labels.of_one & asked.union(keys) and not view["whenUnsatisfiable"].given:
            path = view["labelSelector"].path
            more = f": {self.labels.advice}" if self.labels.advice else ""
            self.messages.append(f"{path} may select pods of other jobs too, with which places are not planned{more}")
        return any(key in self.labels.by_job for key in keys)

    def _has(self, key: str) -> bool:
        """Whether the pods have a label."""
        return key in self.labels.known or not self.labels.value_known(key)

    def _refuse_varying(self, view: View, keys: Iterable[str], requirements: Iterable[Requirement]) -> None:
        """Values that are not known before the pods exist can't be selected."""
        for requirement in requirements:
            if requirement.operator in ("In", "NotIn") and not self.labels.value_known(requirement.key):
                about = f"selects {requirement.key} by its value, which is not known before there are pods"
                raise self._refusal(view["labelSelector"], f"{about}: use matchLabelKeys")
        if any(key in self.labels.by_pod for key in keys):
            raise self._refusal(view["matchLabelKeys"], "tells each pod from all others: it says nothing, take it away")
        if view["whenUnsatisfiable"].given and any(key in self.labels.by_job for key in keys):
            about = (
                "spreads the pods of each child Job by themselves, which can't be planned: take the label of the child"
            )
            raise self._refusal(view["matchLabelKeys"], f"{about} Job away")

    def _refusal(self, view: View, about: str) -> Unresolvable:
        return Unresolvable(UNPLANNABLE, view.path, f"{view.path} {about}")


def _requirements(selector: View) -> Iterable[Requirement]:
    for key, value in selector["matchLabels"].texts().items():
        yield Requirement(key, "In", (value,))
    for entry in selector["matchExpressions"].items():
        values = tuple(value.text() for value in entry["values"].items())
        yield Requirement(entry["key"].text(), entry["operator"].text(), values)


def _selects(requirements: Iterable[Requirement], labels: PodLabels) -> bool:
    """Whether a selector selects pods with these labels; a value that nobody knows meets what asks for none."""
    found = dict.fromkeys(labels.unknown | labels.by_job | labels.by_pod, "") | dict(labels.known)
    return all(meets(requirement, found) for requirement in requirements)
