"""Changes of the configuration for the terminal: objects, fields, and who feels them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from queue_manager.cli.output import Format, finding_text, print_data
from queue_manager.config.human import clean

Answer = Mapping[str, Any]
MARKS = {"created": "+", "changed": "~", "deleted": "-"}
EFFECTS = {
    "overQuota": "running ones that would use more than the quota of their queue",
    "preemptible": "running ones that others could preempt",
    "wouldStop": "running ones that would be evicted at once",
    "wouldStart": "waiting ones that would start",
    "neverStart": "waiting ones that could never start",
}
MOST = 20
"""Names of workloads that are listed of each effect; `-o json` has all."""


def show_applied(answer: Answer, form: Format) -> None:
    """What an apply or a rollback has done."""
    if form is not Format.TABLE:
        print_data(answer, form, names_of(answer))
        return
    _warn(answer)
    for change in answer["changes"]:
        print(f"{change['kind']} {clean(_name(change))} {change['action']}")
    word = "revision" if answer["changes"] else "nothing to change at revision"
    print(f"{word} {answer['revision']}")


def names_of(answer: Answer) -> list[str]:
    """`Kind/name` of what changes."""
    return [f"{change['kind']}/{_name(change)}" for change in answer["changes"]]


def show_difference(answer: Answer, form: Format) -> None:
    """What would change, field by field."""
    if form is not Format.TABLE:
        print_data(answer, form, names_of(answer))
        return
    _show_changes(answer)


def show_plan(answer: Answer, form: Format, then: str = "") -> None:
    """What would change, and who would feel it; `then` is the command that does just that."""
    show_difference(answer, form)
    if form is not Format.TABLE or not answer["changes"]:
        return
    _show_effects(answer)
    if then:
        print(f"\napply exactly this: {then} --if-plan {answer['hash']}")


def _show_changes(answer: Answer) -> None:
    _warn(answer)
    for line in change_lines(answer["changes"]):
        print(clean(line))
    if not answer["changes"]:
        print(f"nothing to change at revision {answer['revision']}")


def _show_effects(answer: Answer) -> None:
    found = {name: answer[name] for name in EFFECTS if answer[name]}
    if not found:
        print("\nno workload is touched")
    for name, workloads in found.items():
        print(f"\n{EFFECTS[name]}: {len(workloads)}")
        for workload in workloads[:MOST]:
            print(f"    {clean(workload)}")
        if len(workloads) > MOST:
            print(f"    ... and {len(workloads) - MOST} more")
    for sentence in answer["limits"]:
        print(f"\nnote: {clean(sentence)}")


def change_lines(changes: Iterable[Answer]) -> Iterable[str]:
    """One line an object and, where it is changed, one a field."""
    for change in changes:
        yield f"{MARKS[change['action']]} {change['kind']} {_name(change)}"
        if change["action"] == "changed":
            for field in change["fields"]:
                yield f"    {field['field']}: {_value(field['before'])} -> {_value(field['after'])}"


def _name(change: Answer) -> str:
    return f"{change['namespace']}/{change['name']}" if change["namespace"] else str(change["name"])


def _value(value: Any) -> str:
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _warn(answer: Answer) -> None:
    for warning in answer["warnings"]:
        print(f"warning: {clean(finding_text(warning))}", file=sys.stderr)
