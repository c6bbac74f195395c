"""The validating decision: what a client may write on a managed job, with a message that names the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from queue_manager.cluster.port import Object
from queue_manager.config.names import check_name
from queue_manager.config.problem import nearest_or_list
from queue_manager.kinds import kueue_keys
from queue_manager.kinds.fields import written_as
from queue_manager.kinds.kind import PREFIX, PRIORITY_CLASS_LABEL, QUEUE_LABEL, Kind, Lookup, Unresolvable
from queue_manager.webhook.mutation import groups_value
from queue_manager.webhook.review import Request, Verdict
from queue_manager.webhook.rules import GROUPS_ANNOTATION, USER_ANNOTATION, Catalogue, Rules
from queue_manager.webhook.scope import annotations_of, named_by, queue_of

# Annotations whose value is a topology level or a list of them; the strict ones can't be met with an unknown one.
_STRICT_LEVELS = tuple(
    PREFIX + name
    for name in ("required-topology", "podset-group-required-topology", "slice-topology", "exclusive-topology")
)
_SOFT_LEVELS = tuple(PREFIX + name for name in ("preferred-topology", "spread-topology"))


class Finding(Protocol):
    """What a kind says about a job's annotations; `severity` is `error` for what must be refused."""

    @property
    def field(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def severity(self) -> str: ...


AnnotationCheck = Callable[[Object, Lookup], Sequence[Finding]]


@dataclass(slots=True)
class Findings:
    """Refusals and warnings, at most one each a field, in the order they were found."""

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, where: str, message: str) -> None:
        self._add(self.refusals, where, message)

    def warn(self, where: str, message: str) -> None:
        self._add(self.warnings, where, message)

    @staticmethod
    def _add(texts: list[str], where: str, message: str) -> None:
        # One complaint a field is enough, the first is the most exact.
        if not any(text.startswith(f"{where}: ") for text in texts):
            texts.append(f"{where}: {message}")

    def verdict(self, known: Findings) -> Verdict:
        """The answer; what was wrong before the request (`known`) refuses nothing, else such an object could never be
        changed again, not even to repair it in part or to remove its finalizer."""
        refused = [text for text in self.refusals if text not in known.refusals]
        warnings = [text for text in self.warnings if text not in known.warnings]
        return Verdict(refused="; ".join(refused), warnings=tuple(warnings))


def validate_job(
    request: Request, obj: Object, old: Object | None, kind: Kind, rules: Rules, lookup: Lookup, check: AnnotationCheck
) -> Verdict:
    """The verdict on the creation (`old` None) or the update of a managed top-level job."""
    findings = _content(request, obj, rules, lookup, check)
    if old is None:
        return findings.verdict(Findings())
    known = _content(request, old, rules, lookup, check)
    _queue_change(request, obj, old, kind, lookup, findings)
    _priority_change(request, obj, old, kind, lookup, findings)
    _user_change(request, obj, old, rules, lookup, findings)
    if kind.is_suspended(old) and not kind.is_suspended(obj) and kind.finished(old) is None:
        findings.warn(
            "spec.suspend", "a managed job starts by its admission: it is queued, and suspended again until then"
        )
    return findings.verdict(known)


def _content(request: Request, obj: Object, rules: Rules, lookup: Lookup, check: AnnotationCheck) -> Findings:
    """What is wrong with the object itself."""
    findings = Findings()
    catalogue = rules.catalogue()
    _labels(request, obj, lookup, catalogue, findings)
    for finding in check(obj, lookup):
        add = findings.refuse if finding.severity == "error" else findings.warn
        add(finding.field, finding.message)
    if catalogue is not None:
        # What can't be read has been refused by now.
        with suppress(Unresolvable):
            _levels(kueue_keys.everywhere(obj, lookup), catalogue, findings)
    return findings


def _labels(request: Request, obj: Object, lookup: Lookup, catalogue: Catalogue | None, findings: Findings) -> None:
    named = named_by(obj, lookup, QUEUE_LABEL)
    if named is not None:
        key, queue = named
        problem = check_name(queue)
        if problem:
            findings.refuse(_at("labels", key), problem)
        elif catalogue is not None and not _knows_queue(catalogue, request.namespace, queue):
            own = (name for namespace, name in catalogue.local_queues if namespace == request.namespace)
            hint = nearest_or_list(queue, {*own, *catalogue.queues}, "queue")
            findings.warn(_at("labels", key), f"there is no queue {queue!r}, the job waits until there is one; {hint}")
    named = named_by(obj, lookup, PRIORITY_CLASS_LABEL)
    if named is None:
        return
    key, priority = named
    problem = check_name(priority)
    if problem:
        findings.refuse(_at("labels", key), problem)
    elif catalogue is not None and priority not in catalogue.priority_classes:
        hint = nearest_or_list(priority, catalogue.priority_classes, "priority class")
        findings.warn(_at("labels", key), f"there is no priority class {priority!r}; {hint}")


def _knows_queue(catalogue: Catalogue, namespace: str, queue: str) -> bool:
    return (namespace, queue) in catalogue.local_queues or queue in catalogue.queues


def _levels(obj: Object, catalogue: Catalogue, findings: Findings) -> None:
    for where, given in _all_annotations(obj):
        for key in (*_STRICT_LEVELS, *_SOFT_LEVELS):
            for level in (part.strip() for part in given.get(key, "").split(",")):
                if not level or level in catalogue.topology_levels:
                    continue
                hint = nearest_or_list(level, catalogue.topology_levels, "topology")
                add = findings.refuse if key in _STRICT_LEVELS else findings.warn
                add(f"{where}[{written_as(given, key)}]", f"{level!r} is no level of any topology; {hint}")


def _all_annotations(value: dict[str, Any] | list[Any], path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Path and content of the annotations of the object and of all templates inside it."""
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
            yield f"{path}metadata.annotations", metadata["annotations"]
        for key, child in value.items():
            if isinstance(child, (dict, list)) and key not in ("metadata", "status"):
                yield from _all_annotations(child, f"{path}{key}.")
        return
    for index, child in enumerate(value):
        if isinstance(child, (dict, list)):
            yield from _all_annotations(child, f"{path.removesuffix('.')}[{index}].")


def _queue_change(request: Request, obj: Object, old: Object, kind: Kind, lookup: Lookup, findings: Findings) -> None:
    before = queue_of(old, lookup, request.managed_namespace)
    after = queue_of(obj, lookup, request.managed_namespace)
    if before == after or kind.is_suspended(old) or kind.finished(old) is not None:
        return
    label = named_by(obj, lookup, QUEUE_LABEL) or named_by(old, lookup, QUEUE_LABEL)
    where = _at("labels", label[0] if label else QUEUE_LABEL)
    if before is None:
        findings.refuse(
            where, "a running job can't be put into a queue: suspend it first, it then waits for its admission"
        )
    else:
        name = f"{request.namespace}/{request.name}"
        findings.refuse(
            where, f"the job is admitted from queue {before!r}: move it with `queue-manager move {name}`, or suspend it"
        )


def _priority_change(
    request: Request, obj: Object, old: Object, kind: Kind, lookup: Lookup, findings: Findings
) -> None:
    """What runs keeps its priority class: the label counts once it waits again."""
    before, after = named_by(old, lookup, PRIORITY_CLASS_LABEL), named_by(obj, lookup, PRIORITY_CLASS_LABEL)
    if before == after or kind.is_suspended(old) or kind.finished(old) is not None:
        return
    label = after or before
    assert label is not None
    name = f"{request.namespace}/{request.name}"
    findings.warn(
        _at("labels", label[0]),
        f"the job is admitted, and keeps its priority class until it waits again: `queue-manager reprioritise {name}`"
        " changes it now",
    )


def _user_change(request: Request, obj: Object, old: Object, rules: Rules, lookup: Lookup, findings: Findings) -> None:
    """Who a job runs for is told at its creation. A job that only now becomes managed was never looked at: it may carry
    no user but the one who makes it so."""
    if rules.may_name_users(request.user_info.username):
        return
    before, after = annotations_of(old), annotations_of(obj)
    own = {USER_ANNOTATION: request.user_info.username, GROUPS_ANNOTATION: groups_value(request.user_info.groups)}
    unseen = queue_of(old, lookup, request.managed_namespace) is None
    for key in (USER_ANNOTATION, GROUPS_ANNOTATION):
        if unseen and after.get(key) not in (None, own[key]):
            findings.refuse(_at("annotations", key), "it says for whom the job runs and may only name yourself")
        elif not unseen and before.get(key) != after.get(key):
            findings.refuse(_at("annotations", key), "it is written when the job is created and never changes")


def _at(part: str, key: str) -> str:
    """Path of a label or annotation for people."""
    return f"metadata.{part}[{key}]"
