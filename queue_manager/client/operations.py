"""Every operation of the API, described once. `Operations` makes them methods of both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from queue_manager.client import types
from queue_manager.client.call import (
    MERGE_PATCH,
    YAML,
    Call,
    Download,
    Listing,
    Operation,
    Page,
    Query,
    Versioned,
    act,
    get,
    get_text,
    send,
    versioned,
)

V1 = "/api/v1"
PLURALS: Mapping[str, str] = {
    "Topology": "topologies",
    "Flavor": "flavors",
    "Cohort": "cohorts",
    "Queue": "queues",
    "PriorityClass": "priority-classes",
    "LocalQueue": "local-queues",
    "RoleBinding": "role-bindings",
    "Settings": "settings",
}
EVENTS = f"{V1}/events"
PAGE = 500
STALE = 412
NO_QUERY: Query = {}


class NoNameError(ValueError):
    """What is given as a name can't be one: it is empty, or a step in a path."""


def workload_path(namespace: str, name: str) -> str:
    """Path of one workload."""
    return f"{V1}/workloads/{_step(namespace)}/{_step(name)}"


def object_path(kind: str, name: str, namespace: str = "") -> str:
    """Path of one object of the configuration."""
    return f"{V1}/{PLURALS[kind]}/" + (f"{_step(namespace)}/{_step(name)}" if namespace else _steps(name))


def _steps(path: str) -> str:
    return "/".join(map(_step, path.split("/")))


def _step(text: str) -> str:
    if text in ("", ".", ".."):
        raise NoNameError(f"{text!r} is no name: it would be another path")
    return quote(text, safe="")


# ---- workloads


def workloads(
    *,
    queue: str = "",
    cohort: str = "",
    state: Sequence[types.State] = (),
    user: str = "",
    kind: str = "",
    namespace: str = "",
    text: str = "",
    sort: str = "",
    fields: str = "",
    limit: int = PAGE,
) -> Call[Page[types.Workload]]:
    """Workloads, newest first unless `sort` says otherwise; every filter narrows the list. `limit` is the size of a
    page, `fields` (name,state) are all that is answered of each."""
    query = {"queue": queue, "cohort": cohort, "state": list(state), "user": user, "kind": kind}
    return get(
        f"{V1}/workloads",
        {**query, "namespace": namespace, "text": text, "sort": sort, "fields": fields, "limit": limit},
    )


def workload(namespace: str, name: str, *, kind: str = "") -> Call[types.Workload]:
    """One workload; `kind` where jobs of several kinds have this name."""
    return get(workload_path(namespace, name), {"kind": kind})


def explanation(namespace: str, name: str, *, kind: str = "") -> Call[types.Explanation]:
    """Why it waits."""
    return get(f"{workload_path(namespace, name)}/explanation", {"kind": kind})


def history(namespace: str, name: str, *, kind: str = "") -> Call[types.History]:
    """Its admissions, how each ended, and what people asked of it."""
    return get(f"{workload_path(namespace, name)}/history", {"kind": kind})


def checks(namespace: str, name: str, *, kind: str = "", sort: str = "", fields: str = "") -> Call[Page[types.Check]]:
    """The checks of its queue, and what they say of it, by name unless `sort` is at (with - the newest first)."""
    return get(f"{workload_path(namespace, name)}/checks", {"kind": kind, "sort": sort, "fields": fields})


def answer_check(
    namespace: str,
    name: str,
    check: str,
    state: str,
    *,
    message: str = "",
    requeue_after: int | str | None = None,
    kind: str = "",
) -> Call[types.Check]:
    """The answer of a check: Ready, Retry or Rejected."""
    body = {"state": state, "message": message} | ({"requeueAfter": requeue_after} if requeue_after is not None else {})
    path = f"{workload_path(namespace, name)}/checks/{_step(check)}"
    return send("PUT", path, body, {"kind": kind}, repeatable=True)


def action(namespace: str, name: str, action: str, *, kind: str = "", **body: Any) -> Call[types.Workload]:
    """An action on a workload by its name in the API; `body` is what it takes beside the reason."""
    return act(f"{workload_path(namespace, name)}/{action}", body, {"kind": kind})


def hold(namespace: str, name: str, *, reason: str, kind: str = "") -> Call[types.Workload]:
    """Takes it out of its queue, or stops it, until it is released."""
    return action(namespace, name, "hold", kind=kind, reason=reason)


def release(namespace: str, name: str, *, reason: str, kind: str = "") -> Call[types.Workload]:
    """Lets it queue again: held, deactivated, or backing off."""
    return action(namespace, name, "release", kind=kind, reason=reason)


def move(
    namespace: str, name: str, queue: str, *, reason: str, force: bool = False, kind: str = ""
) -> Call[types.Workload]:
    """Puts it into another queue: a local queue of its namespace, or a queue by name or path."""
    return action(namespace, name, "move", kind=kind, reason=reason, queue=queue, force=force)


def reprioritise(
    namespace: str, name: str, priority_class: str, *, reason: str, kind: str = ""
) -> Call[types.Workload]:
    """Gives it another priority class."""
    return action(namespace, name, "reprioritise", kind=kind, reason=reason, priorityClass=priority_class)


def evict(
    namespace: str, name: str, *, reason: str, requeue_after: int | str | None = None, kind: str = ""
) -> Call[types.Workload]:
    """Stops it; it queues again, after a pause (seconds, or a duration such as 10m) if one is given."""
    more = {"requeueAfter": requeue_after} if requeue_after is not None else {}
    return action(namespace, name, "evict", kind=kind, reason=reason, **more)


# ---- stops


def stops(*, sort: str = "", fields: str = "", limit: int = PAGE) -> Call[Page[types.Stop]]:
    """Everything that is stopped by hand, by name unless `sort` is at (with - the newest first)."""
    return get(f"{V1}/stops", {"sort": sort, "fields": fields, "limit": limit})


def stop_queue(name: str, policy: str, *, reason: str) -> Call[types.Stop]:
    """Stops a queue, by its name or path (Hold, HoldAndDrain), or ends that (None)."""
    return act(f"{V1}/queues/{_steps(name)}/stop", {"policy": policy, "reason": reason}, NO_QUERY)


def stop_cohort(name: str, policy: str, *, reason: str) -> Call[types.Stop]:
    """Stops every queue below a cohort, or ends that."""
    return act(f"{V1}/cohorts/{_steps(name)}/stop", {"policy": policy, "reason": reason}, NO_QUERY)


def stop_local_queue(namespace: str, name: str, policy: str, *, reason: str) -> Call[types.Stop]:
    """Stops what one namespace has in a queue, or ends that."""
    path = f"{V1}/local-queues/{_step(namespace)}/{_step(name)}/stop"
    return act(path, {"policy": policy, "reason": reason}, NO_QUERY)


def stop_flavor(name: str, policy: str, *, reason: str) -> Call[types.Stop]:
    """Gives a flavor to nobody any more, or ends that."""
    return act(f"{V1}/flavors/{_steps(name)}/stop", {"policy": policy, "reason": reason}, NO_QUERY)


def plan_stop_queue(name: str, policy: str) -> Call[types.Plan]:
    """Whom it would hurt or help to stop a queue, or to end that."""
    return _plan_stop(f"queues/{_steps(name)}", policy)


def plan_stop_cohort(name: str, policy: str) -> Call[types.Plan]:
    """The same for every queue below a cohort."""
    return _plan_stop(f"cohorts/{_steps(name)}", policy)


def plan_stop_local_queue(namespace: str, name: str, policy: str) -> Call[types.Plan]:
    """The same for what one namespace has in a queue."""
    return _plan_stop(f"local-queues/{_step(namespace)}/{_step(name)}", policy)


def plan_stop_flavor(name: str, policy: str) -> Call[types.Plan]:
    """The same for a flavor."""
    return _plan_stop(f"flavors/{_steps(name)}", policy)


def _plan_stop(path: str, policy: str) -> Call[types.Plan]:
    return send("POST", f"{V1}/{path}/stop/plan", {"policy": policy}, repeatable=True)


# ---- usage


def tree(*, fields: str = "") -> Call[types.Tree]:
    """The whole queue tree with usage; `fields` are those of every node."""
    return get(f"{V1}/tree", {"fields": fields})


def queue_usage(name: str, *, fields: str = "") -> Call[types.NodeUsage]:
    """Usage of a queue, by its name or path."""
    return get(f"{V1}/queues/{_steps(name)}/usage", {"fields": fields})


def cohort_usage(name: str, *, fields: str = "") -> Call[types.NodeUsage]:
    """Usage of everything below a cohort, by its name or path."""
    return get(f"{V1}/cohorts/{_steps(name)}/usage", {"fields": fields})


def usage(
    *,
    by: Sequence[str] = (),
    since: str = "",
    until: str = "",
    step: str = "",
    queue: str = "",
    cohort: str = "",
    level: int | None = None,
    namespace: str = "",
    user: str = "",
    flavor: str = "",
    resource: str = "",
    kind: str = "",
    priority_class: str = "",
    sort: str = "",
    fields: str = "",
    cursor: str = "",
    limit: int | None = None,
) -> Call[types.UsageOverTime]:
    """What was charged over time, by group and bucket, beside the quota there was. `since` and `until` are times,
    dates, months (2026-11), how long ago (7d), or words such as last-month; `fields` are those of the items. With a
    `limit` there is more where `next` is not None: it is the `cursor` of the next page."""
    query: dict[str, Any] = {"by": list(by), "from": since, "to": until, "step": step, "queue": queue, "cohort": cohort}
    query |= {"level": level, "namespace": namespace, "user": user, "flavor": flavor, "resource": resource}
    query |= {"kind": kind, "priorityClass": priority_class, "sort": sort, "fields": fields}
    return get(f"{V1}/usage", {**query, "cursor": cursor, "limit": limit})


# ---- configuration


def export() -> Call[str]:
    """The whole configuration as YAML that `apply` reads."""
    return get_text(f"{V1}/config")


def schema() -> Call[dict[str, Any]]:
    """JSON Schema of a configuration object."""
    return get(f"{V1}/schema")


def _proposal(file: str, owner: str, prune: bool) -> dict[str, Any]:
    return {"file": file, "owner": owner, "prune": prune or ""}


def apply(
    text: str, *, file: str = "", owner: str = "", prune: bool = False, reason: str = "", if_plan: str = ""
) -> Call[types.Applied]:
    """Creates or changes the objects of the YAML text: all of them or none. `if_plan` is the hash of a plan: nothing
    is done where that is no longer the plan."""
    query = {**_proposal(file, owner, prune), "reason": reason, "ifPlan": if_plan}
    return send("PUT", f"{V1}/config", text, query, media=YAML, repeatable=not if_plan)


def diff(text: str, *, file: str = "", owner: str = "", prune: bool = False) -> Call[types.Difference]:
    """What applying the text would change. Changes nothing."""
    return send("POST", f"{V1}/config/diff", text, _proposal(file, owner, prune), media=YAML, repeatable=True)


def plan(text: str, *, file: str = "", owner: str = "", prune: bool = False) -> Call[types.Plan]:
    """What applying the text would change, and whom that hurts or helps now. Changes nothing."""
    return send("POST", f"{V1}/config/plan", text, _proposal(file, owner, prune), media=YAML, repeatable=True)


def revisions(
    *,
    author: str = "",
    since: str = "",
    until: str = "",
    kind: str = "",
    object: str = "",
    sort: str = "",
    fields: str = "",
    limit: int = 50,
) -> Call[Page[types.Revision]]:
    """Changes of the configuration, newest first unless `sort` is number; every filter narrows the list. `kind` and
    `object` (Queue/nlp) are those that were touched."""
    query = {"author": author, "from": since, "to": until, "kind": kind, "object": object}
    return get(f"{V1}/revisions", {**query, "sort": sort, "fields": fields, "limit": limit})


def revision(number: int) -> Call[types.Revision]:
    """One change of the configuration."""
    return get(f"{V1}/revisions/{number}")


def diff_rollback(number: int) -> Call[types.Difference]:
    """What a rollback to the revision would change. Changes nothing."""
    return send("POST", f"{V1}/revisions/{number}/diff", repeatable=True)


def plan_rollback(number: int) -> Call[types.Plan]:
    """What a rollback to the revision would change, and whom that hurts or helps now. Changes nothing."""
    return send("POST", f"{V1}/revisions/{number}/plan", repeatable=True)


def roll_back(number: int, *, reason: str = "", if_plan: str = "") -> Call[types.Applied]:
    """Makes the configuration what it was at the revision; that is a new revision."""
    return act(f"{V1}/revisions/{number}/rollback", None, {"reason": reason, "ifPlan": if_plan})


def objects(
    kind: str, *, text: str = "", sort: str = "", fields: str = "", limit: int = PAGE
) -> Call[Page[types.Document]]:
    """Objects of a kind, by namespace and name (`-name`: the last one first), of which a part is `text`."""
    return get(f"{V1}/{PLURALS[kind]}", {"text": text, "sort": sort, "fields": fields, "limit": limit})


def object(kind: str, name: str, *, namespace: str = "") -> Call[Versioned[types.Document]]:
    """One object, with the ETag that a change of it needs."""
    return versioned(get(object_path(kind, name, namespace)))


def put_object(document: types.Document, *, if_match: str = "", reason: str = "") -> Call[Versioned[types.Document]]:
    """Replaces one object that still has the ETag `if_match`, or creates it where that is empty."""
    metadata = document["metadata"]
    path = object_path(document["kind"], metadata["name"], metadata.get("namespace", ""))
    headers = {"If-Match": if_match, "If-None-Match": "" if if_match else "*"}
    return versioned(send("PUT", path, document, {"reason": reason}, headers=headers))


def patch_object(
    kind: str, name: str, patch: Query, *, if_match: str, namespace: str = "", reason: str = ""
) -> Call[Versioned[types.Document]]:
    """Merges fields into one object (RFC 7396) that still has the ETag; `*` takes whatever is there."""
    path, headers = object_path(kind, name, namespace), {"If-Match": if_match}
    return versioned(send("PATCH", path, patch, {"reason": reason}, media=MERGE_PATCH, headers=headers))


def delete_object(kind: str, name: str, *, if_match: str, namespace: str = "", reason: str = "") -> Call[None]:
    """Deletes one object that still has the ETag; `*` deletes whatever is there."""
    headers = {"If-Match": if_match}
    return send("DELETE", object_path(kind, name, namespace), None, {"reason": reason}, headers=headers)


# ---- access


def tokens(*, revoked: bool = False, sort: str = "", fields: str = "", limit: int = PAGE) -> Call[Page[types.Token]]:
    """Tokens that the caller may revoke, newest first unless `sort` is created."""
    return get(f"{V1}/tokens", {"revoked": revoked or "", "sort": sort, "fields": fields, "limit": limit})


def token(id: int) -> Call[types.Token]:
    """One token."""
    return get(f"{V1}/tokens/{id}")


def create_token(
    name: str, scopes: Sequence[types.TokenScope], *, expires_in: int | str | None = None, reason: str = ""
) -> Call[types.NewToken]:
    """Makes a token; the answer is the only place where it stands."""
    body = {"name": name, "scopes": list(scopes), "expiresIn": expires_in, "reason": reason}
    return send("POST", f"{V1}/tokens", body)


def revoke_token(id: int, *, reason: str = "") -> Call[None]:
    """Ends a token at once."""
    return send("DELETE", f"{V1}/tokens/{id}", None, {"reason": reason}, repeatable=True)


def audit(
    *,
    who: str = "",
    action: str = "",
    object: str = "",
    since: str = "",
    until: str = "",
    sort: str = "",
    fields: str = "",
    limit: int = PAGE,
) -> Call[Page[types.AuditLine]]:
    """Lines of the audit log, newest first unless `sort` is at; `object` is the beginning of an object's name."""
    query = {"who": who, "action": action, "object": object, "from": since, "to": until}
    return get(f"{V1}/audit", {**query, "sort": sort, "fields": fields, "limit": limit})


def export_audit(
    *, format: str = "ndjson", who: str = "", action: str = "", object: str = "", since: str = "", until: str = ""
) -> Call[str]:
    """The same as a text of NDJSON or CSV, all of it, in parts as they come."""
    query = {"format": format, "who": who, "action": action, "object": object, "from": since, "to": until}
    return get_text(f"{V1}/audit/export", query)


class Operations:
    """The methods that both clients have. What they take and answer stands at the functions of this module."""

    workloads = Listing(workloads)
    workload = Operation(workload)
    explanation = Operation(explanation)
    history = Operation(history)
    checks = Listing(checks)
    answer_check = Operation(answer_check)
    action = Operation(action)
    hold = Operation(hold)
    release = Operation(release)
    move = Operation(move)
    reprioritise = Operation(reprioritise)
    evict = Operation(evict)
    stops = Listing(stops)
    stop_queue = Operation(stop_queue)
    stop_cohort = Operation(stop_cohort)
    stop_local_queue = Operation(stop_local_queue)
    stop_flavor = Operation(stop_flavor)
    plan_stop_queue = Operation(plan_stop_queue)
    plan_stop_cohort = Operation(plan_stop_cohort)
    plan_stop_local_queue = Operation(plan_stop_local_queue)
    plan_stop_flavor = Operation(plan_stop_flavor)
    tree = Operation(tree)
    queue_usage = Operation(queue_usage)
    cohort_usage = Operation(cohort_usage)
    usage = Operation(usage)
    export = Operation(export)
    schema = Operation(schema)
    apply = Operation(apply)
    diff = Operation(diff)
    plan = Operation(plan)
    revisions = Listing(revisions)
    revision = Operation(revision)
    diff_rollback = Operation(diff_rollback)
    plan_rollback = Operation(plan_rollback)
    roll_back = Operation(roll_back)
    objects = Listing(objects)
    object = Operation(object)
    put_object = Operation(put_object)
    patch_object = Operation(patch_object)
    delete_object = Operation(delete_object)
    tokens = Listing(tokens)
    token = Operation(token)
    create_token = Operation(create_token)
    revoke_token = Operation(revoke_token)
    audit = Listing(audit)
    export_audit = Download(export_audit)
