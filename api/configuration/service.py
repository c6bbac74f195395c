"""Applies and exports the configuration: everything of a request or nothing, with every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from queue_manager.config.compiled import from_stored
from queue_manager.config.difference import field_changes
from queue_manager.config.export import export
from queue_manager.config.models import ConfigObject
from queue_manager.config.parse import ParseResult, parse
from queue_manager.config.problem import Problem, nearest_or_list
from queue_manager.config.stops import KIND as STOP
from queue_manager.config.stops import Stop
from queue_manager.config.validate import advise, unknown_parents, validate
from queue_manager.store import records
from queue_manager.store.configurations import Chosen, difference, touched
from queue_manager.store.records import StaleConfiguration

from ..auth.access import Access, find_node
from ..auth.changes import check_change
from ..auth.decisions import KINDS
from ..auth.references import as_seen
from ..auth.veil import Veil, telling, texts_of
from ..context import Context, Loaded
from ..moments import bad_query
from ..paging import Page, number_of
from ..problems import ProblemError, not_found
from .schemas import Applied, DescribedChange, FieldChange, Finding, ObjectChange, RevisionEntry

T = TypeVar("T")
Entry = Mapping[str, Any]
"""{kind, namespace, name, before, after} of a diff."""
Key = tuple[str, str, str]
"""(kind, namespace, name)."""

TRIES = 5
"""How often a change is tried on the newest revision while others change it."""
NO_OWNERS: Mapping[Key, str] = {}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one revision that is valid: objects created or replaced, and keys of those deleted; `objects` are all
    as they will be."""

    loaded: Loaded
    made: tuple[records.ConfigObject, ...]
    gone: tuple[Key, ...]
    objects: Sequence[ConfigObject]
    advice: tuple[Problem, ...] = ()

    def diff(self) -> list[dict[str, Any]]:
        """Objects that are not the same afterwards, before and after."""
        return difference(self.loaded.stored, self.made, self.gone)

    def after(self) -> list[records.ConfigObject]:
        """All objects as they will be."""
        objects = {key_of(row): row for row in self.loaded.stored if key_of(row) not in self.gone}
        objects.update((key_of(row), row) for row in self.made)
        return [objects[key] for key in sorted(objects)]


Proposing = Callable[[Context, Loaded], Proposal]


def export_text(context: Context) -> tuple[int, str]:
    """The revision and the whole configuration as YAML, as far as the caller may see it."""
    loaded = context.configuration()
    access = context.access_by(loaded)
    return loaded.revision, export([item for item in loaded.objects if access.sees_object(item)])


def apply_text(
    context: Context,
    text: str,
    *,
    file: str = "",
    owner: str = "",
    prune: bool = False,
    reason: str = "",
    expected: int | None = None,
) -> Applied:
    """Creates and changes the objects of a YAML text; with `prune` deletes the owner's objects that it lacks."""
    return apply(context, of_text(text, file=file, owner=owner, prune=prune, expected=expected), reason)


def apply_planned(context: Context, proposal: Proposal, reason: str) -> Applied | None:
    """Applies what was planned; None when the configuration has moved since."""
    with context.writing:
        try:
            return write(context, proposal, reason)
        except StaleConfiguration:
            return None


def of_text(
    text: str, *, file: str = "", owner: str = "", prune: bool = False, expected: int | None = None
) -> Proposing:
    """What a YAML text asks for, given the newest revision; every problem of it is told."""
    if prune and not owner:
        raise ProblemError(422, "Prune needs an owner", "say by `owner` whose objects may be deleted")
    result = parse(text, file)
    wanted = {item.key for item in result.objects}

    def proposing(context: Context, loaded: Loaded) -> Proposal:
        if expected is not None and expected != loaded.revision:
            raise stale(f"the configuration is at revision {loaded.revision}, not {expected}")
        gone = [key_of(row) for row in loaded.stored if prune and row.owner == owner and key_of(row) not in wanted]
        return propose(context, loaded, result, gone, owner)

    return proposing


def of_rollback(context: Context, number: int) -> Proposing:
    """The whole configuration as it was at a revision, owners too."""
    try:
        wanted = context.store.configuration_at(number)
    except LookupError:
        raise not_found("revision", str(number)) from None
    result = from_stored(wanted)
    owners = {key_of(row): row.owner for row in wanted if row.kind != STOP}

    def proposing(context: Context, loaded: Loaded) -> Proposal:
        # What somebody has stopped meanwhile stays stopped.
        gone = [key_of(row) for row in loaded.stored if key_of(row) not in owners and row.kind != STOP]
        return propose(context, loaded, result, gone, "", owners, parents=False)

    return proposing


def apply(context: Context, proposing: Proposing, reason: str) -> Applied:
    """Applies a change to whatever the newest revision is."""
    return change(context, lambda loaded: write(context, proposing(context, loaded), reason))


def rollback_reason(number: int) -> str:
    """What a revision says that was made without words of its own."""
    return f"rollback to revision {number}"


def change(context: Context, attempt: Callable[[Loaded], T]) -> T:
    """Tries on the newest revision until nobody else (another process) has changed it meanwhile; conditions of the
    request are looked at anew each time."""
    with context.writing:
        for _ in range(TRIES):
            try:
                return attempt(context.configuration())
            except StaleConfiguration:
                continue
    raise too_fast()


def too_fast() -> ProblemError:
    """409: others change the configuration all the time."""
    return ProblemError(409, "Configuration changes too fast", "try again", headers={"Retry-After": "1"})


def propose(
    context: Context,
    loaded: Loaded,
    result: ParseResult,
    gone: Collection[Key],
    owner: str,
    owners: Mapping[Key, str] = NO_OWNERS,
    *,
    parents: bool = True,
) -> Proposal:
    """What a revision would become by these objects and without those `gone`; 422 with every problem. `owner` is the
    owner of all, else each keeps the one it has in `owners` or had before. Without `parents` cohorts may be named that
    are not there: what was valid once is so again."""
    merged = {item.key: item for item in loaded.objects if item.key not in gone}
    merged.update((item.key, item) for item in result.objects)
    objects = list(merged.values())
    known_well = list((merged | {item.key: item for item in result.partial}).values())
    problems = [*result.errors, *validate(known_well, result.broken, gone)]
    changed = [*result.objects, *result.partial]
    if parents:
        problems += unknown_parents(changed, known_well, gone, result.broken, loaded.compiled.tree)
        problems = as_seen(context.access_by(loaded), loaded, changed, problems)
    if problems:
        raise invalid(problems)
    known = {key_of(row): row.owner for row in loaded.stored} | dict(owners)
    made = [_record(item, owner or known.get(item.key, "")) for item in result.objects]
    mine = {item.key for item in result.objects}
    advice = [*result.warnings, *(each for each in advise(objects) if _place_of(each) in mine)]
    advice += [_as_stopped(stop) for stop in loaded.stops if stop.subject in mine]
    veil = Veil(context, (each.message for each in advice))
    told = tuple(replace(each, message=veil.text(each.message)) for each in advice)
    return Proposal(loaded, tuple(made), tuple(gone), objects, told)


def _as_stopped(stop: Stop) -> Problem:
    """That applying a file leaves what is stopped by hand as it is."""
    name = f"{stop.namespace}/{stop.name}" if stop.namespace else stop.name
    message = f"is stopped by hand ({stop.policy.value}) {stop.words}; that stays so"
    field = "spec.stopPolicy" if stop.kind in ("Queue", "LocalQueue") else ""
    return Problem(message, "`queue-manager stop` with policy None ends it", kind=stop.kind, name=name, field=field)


def write(context: Context, proposal: Proposal, reason: str) -> Applied:
    before = proposal.loaded.revision
    allowed = check_change(context, proposal.loaded, proposal.objects, proposal.diff())
    revision = context.store.apply_configuration(
        proposal.made,
        delete=proposal.gone,
        author=context.caller.name,
        reason=reason,
        now=context.now(),
        expected_revision=before,
        source=context.caller.source.value,
        address=context.caller.address,
        allowed=allowed,
    )
    new = {item.key: item for item in proposal.objects}
    context.learn(proposal.made, (new[key_of(row)] for row in proposal.made))
    return Applied(
        revision=revision.number,
        changes=_changes(revision.diff) if revision.number != before else [],
        warnings=findings(proposal.advice),
    )


def findings(problems: Iterable[Problem]) -> list[Finding]:
    """Problems as answers have them."""
    return [Finding(**each.as_dict()) for each in problems]


def _place_of(problem: Problem) -> Key:
    namespace, _, name = problem.name.rpartition("/") if problem.kind == "LocalQueue" else ("", "", problem.name)
    return problem.kind, namespace, name


def _changes(diff: Iterable[Entry]) -> list[ObjectChange]:
    return [
        ObjectChange(action=action_of(entry), kind=entry["kind"], namespace=entry["namespace"], name=entry["name"])
        for entry in diff
    ]


def action_of(entry: Entry) -> Literal["created", "changed", "deleted"]:
    """What an entry of a diff says of its object."""
    if entry["before"] is None:
        return "created"
    return "deleted" if entry["after"] is None else "changed"


def described(diff: Iterable[Entry]) -> list[DescribedChange]:
    """A diff field by field."""
    return [
        DescribedChange(
            action=action_of(entry),
            kind=entry["kind"],
            namespace=entry["namespace"],
            name=entry["name"],
            fields=[
                FieldChange(field=field, before=before, after=after)
                for field, before, after in field_changes(_telling(entry["before"]), _telling(entry["after"]))
            ],
        )
        for entry in diff
    ]


def _telling(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What an object says: without what is empty, which is as good as not there."""
    return {name: value for name, value in (body or {}).items() if value}


def invalid(problems: Iterable[Problem]) -> ProblemError:
    """422 with every problem."""
    errors = [each.as_dict() for each in sorted(problems, key=lambda problem: (problem.file, problem.line))]
    title = "Configuration is not valid"
    return ProblemError(422, title, f"{len(errors)} problem(s) found; nothing was changed", errors=errors)


def stale(detail: str) -> ProblemError:
    """412: what the request was made for is not what is there."""
    return ProblemError(412, "Changed in between", f"{detail}; read it again")


def key_of(row: records.ConfigObject) -> Key:
    return row.kind, row.namespace, row.name


def _record(item: ConfigObject, owner: str) -> records.ConfigObject:
    kind, namespace, name = item.key
    return records.ConfigObject(kind, name, item.spec_document(), namespace, dict(item.metadata.labels), owner)


def etag(revision: int) -> str:
    """Strong entity tag of a revision."""
    return f'"{revision}"'


def expected_revision(if_match: str) -> int | None:
    """The revision that an If-Match of the whole configuration names, None when it names none."""
    tag = if_match.strip()
    if not tag or tag == "*":
        return None
    number = tag.strip('"')
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise stale(f"{tag[:40]} is no revision")
    return int(number)


def get_revision(context: Context, number: int) -> RevisionEntry:
    """One revision."""
    found = context.store.revision(number)
    if found is None:
        raise not_found("revision", str(number))
    return _entries(context, [found])[0]


def _entries(context: Context, revisions: Sequence[records.Revision]) -> list[RevisionEntry]:
    """Revisions, with those of their objects that the caller may see; of one without any only its number and time."""
    access = context.access
    if not access.narrowed:
        return [_entry(each, each.diff) for each in revisions]
    seen = [[dict(entry) for entry in each.diff if _is_seen(entry, access)] for each in revisions]
    veil = Veil(context, (text for each in zip(revisions, seen, strict=True) for text in _said(*each)))
    return [
        _entry(each, telling(diff, veil), veil.text(each.author), veil.text(each.reason))
        if diff
        else _entry(each, (), "", "")
        for each, diff in zip(revisions, seen, strict=True)
    ]


def _said(found: records.Revision, diff: list[dict[str, Any]]) -> Iterable[str]:
    return (found.author, found.reason, *texts_of(diff))


def _entry(
    found: records.Revision, diff: Sequence[Entry], author: str | None = None, reason: str | None = None
) -> RevisionEntry:
    return RevisionEntry(
        number=found.number,
        author=found.author if author is None else author,
        at=found.at,
        reason=found.reason if reason is None else reason,
        diff=[dict(entry) for entry in diff],
        changes=described(diff),
    )


def _is_seen(entry: Entry, access: Access) -> bool:
    """Whether an object, that may be gone by now, lies where the caller may look: before and after."""
    bodies = [body for body in (entry["before"], entry["after"]) if body is not None]
    if entry["kind"] in ("Queue", "Cohort") and access.sees((entry["kind"], entry["name"])):
        return True
    return all(_is_seen_body(entry["kind"], body["spec"], access) for body in bodies)


def _is_seen_body(kind: str, spec: Mapping[str, Any], access: Access) -> bool:
    if kind in ("Queue", "Cohort"):
        return access.sees(("Cohort", spec.get("cohort" if kind == "Queue" else "parent", "")))
    if kind in ("LocalQueue", "RoleBinding"):
        node = find_node(access.tree, spec.get("queue" if kind == "LocalQueue" else "node", ""))
        return node is not None and access.sees((node.kind, node.name))
    if kind == STOP:
        return spec["kind"] == "Flavor" or access.sees((spec["kind"], spec["name"]))
    return True


def list_revisions(context: Context, chosen: Chosen, cursor: str, limit: int) -> Page[RevisionEntry]:
    """Revisions that fit the filters, in their order. Of what somebody may not see no filter finds anything."""
    access = context.access
    before, found = number_of(cursor), list[RevisionEntry]()
    while len(found) <= limit:
        page = context.store.revisions(limit + 1, before, chosen)
        entries = _entries(context, page)
        found += [entry for entry in entries if not access.narrowed or _fits(entry, chosen)]
        if len(page) <= limit:
            break
        before = page[-1].number
    shown = found[:limit]
    return Page(items=shown, next=str(shown[-1].number) if len(found) > limit else None)


def chosen_touched(kind: str, object: str) -> tuple[str, ...]:
    """What `kind` and `object` of a query look for; 422 where they can be of no revision."""
    known = (*KINDS.values(), STOP)
    if kind and kind not in known:
        raise bad_query("kind", f"has no {kind!r}; {nearest_or_list(kind, known, 'kind')}")
    of_object = object.partition("/")[0]
    if object and (of_object not in known or "/" not in object):
        raise bad_query("object", f"is KIND/NAME, such as Queue/nlp, where KIND is one of {', '.join(known)}")
    return tuple(filter(None, (kind, object)))


def _fits(entry: RevisionEntry, chosen: Chosen) -> bool:
    """Whether the part of a revision that is shown has what is looked for."""
    if chosen.author and entry.author != chosen.author:
        return False
    return {*chosen.touched} <= {name for each in entry.diff for name in touched(each)}
