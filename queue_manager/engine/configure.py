"""Another configuration for a state: everything is counted anew under it, or amounts of quota are changed in place."""

from __future__ import annotations

from queue_manager.engine.configuration import Cohort, Configuration, Queue
from queue_manager.engine.edits import QuotaEdits, quota_edits
from queue_manager.engine.history import UsageHistory
from queue_manager.engine.pending import Pending
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, NOW, QuotaTree, TreeNode, quotas_of


def configure(state: State, configuration: Configuration) -> None:
    """Replaces the configuration and counts everything anew under it, if more than amounts of quota changed."""
    edits = quota_edits(state.configuration, configuration)
    state.configuration = configuration
    for uid in list(state.starving.by_uid):
        state.starving.end(uid)
    if edits is not None:
        _edit(state, edits)
        return
    state.prepared.clear()
    policies = configuration.policies
    holds = policies.hold_for_starving and policies.hold_freed_quota
    state.tree = QuotaTree(configuration, state.log)
    state.starving.configure(configuration.starvation if holds else None, state.tree)
    _keep_history(state)
    for queue in state.queues.values():
        state.describe(queue)
    for name in configuration.queues:
        state.queue(name)
    for record in state.records.values():
        record.counted = None
        state.count(record)
        for view in (NOW, FUTURE):
            standing = record.standing[view]
            node = None if standing is None else state.tree.queues.get(standing.queue)
            if standing is not None and node is not None:
                state.tree.add(node, standing.charge, view)
    state.members = {}
    for queue in state.queues.values():
        if queue.node is not None:
            state.members.setdefault(queue.node.root, []).append(queue)
    state.to_stop.clear()
    for record in state.records.values():
        state.watch_stop(record)
    _sort_waiting_anew(state)
    state.unplaced.update(uid for uid, record in state.records.items() if record.admission is not None)
    state.dirty.clear()
    state.dirty.update(state.members)
    state.nodes_changed = True


def _edit(state: State, edits: QuotaEdits) -> None:
    """Changes amounts of quota in place; who waits is tried again unless there is still too little for it."""
    edited: list[tuple[TreeNode, Queue | Cohort]] = []
    for name, queue in edits.queues.items():
        state.queue(name).queue = queue
        edited.append((state.tree.queues[name], queue))
    edited += [(state.tree.cohorts[name], cohort) for name, cohort in edits.cohorts.items()]
    state.tree.edit((node, quotas_of(found.resource_groups)) for node, found in edited)
    for root in {node.root for node, _ in edited}:
        state.dirty.add(root)
        for member in state.members.get(root, ()):
            assert member.node is not None
            if member.pending.try_again(member.node):
                state.live.add(member.name)


def _keep_history(state: State) -> None:
    rules, before = state.configuration.history, state.history
    state.history = None
    if rules is not None and state.configuration.policies.past_usage:
        state.history = UsageHistory(state.tree, rules, state.log)
        if before is not None:
            state.history.continue_from(before)


def _sort_waiting_anew(state: State) -> None:
    for queue in state.queues.values():
        queue.pending = Pending(state.log)
        queue.outside = {}
        queue.blocked = None
    state.backoff.clear()
    for record in state.records.values():
        record.group = None
        record.limit = None
        record.outside = None
        state.enqueue(record)
