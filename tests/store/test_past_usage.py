"""Decayed usage read from the ledger is what the engine would have counted."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from queue_manager.engine.configuration import Cell, CellQuota, Configuration, FlavorQuotas, History, Queue
from queue_manager.engine.configuration import ResourceGroup as Group
from queue_manager.engine.history import UNIT_BITS, UsageHistory
from queue_manager.engine.tree import NOW as CHARGED
from queue_manager.engine.tree import QuotaTree
from queue_manager.engine.undo import UndoLog
from queue_manager.store.store import Store
from tests.store.builders import NOW

HOUR = timedelta(hours=1)
RULES = History(3_600_000_000, {}, 300_000_000)
INSERT = text(
    'INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since, until) '
    "VALUES (:uid, 'ns', :queue, 'ann', 'f', 'cpu', :amount, :state, :since, :until)"
)


def charge(
    store: Store,
    uid: str,
    amount: int,
    since: float,
    until: float | None,
    *,
    state: str = "reserved",
    queue: str = "q",
) -> None:
    """An interval of the ledger, in hours from NOW."""
    values = {"uid": uid, "queue": queue, "amount": amount, "state": state, "since": NOW + since * HOUR}
    with store.engine.begin() as connection:
        connection.execute(INSERT, {**values, "until": None if until is None else NOW + until * HOUR})


def read(store: Store, hours: float = 0, queue: str = "q") -> int:
    found = store.past_usage(NOW + hours * HOUR, HOUR, timedelta(minutes=5))
    return found.get(queue, {}).get("cpu", 0) >> UNIT_BITS


def test_an_interval_halves_every_half_life_and_counts_at_once(store: Store) -> None:
    charge(store, "a", 1_000_000, -2, -1)
    at_once = 1 - 0.5 ** (5 / 60)
    assert abs(read(store) - 1_000_000 * (0.5 - 0.25 + 0.25 * at_once)) <= 1
    assert abs(read(store, 1) - 500_000 * (0.5 - 0.25 + 0.25 * at_once)) <= 1
    assert read(store, 70) == 0


def test_draining_and_other_amounts_go_on_and_start_nothing_anew(store: Store) -> None:
    charge(store, "a", 1_000_000, -2, -1)
    charge(store, "b", 1_000_000, -2, -1.5, queue="r")
    charge(store, "b", 1_000_000, -1.5, -1, state="draining", queue="r")
    charge(store, "b", 9_000_000, -1.5, -1, state="reclaimed-loan", queue="r")
    assert abs(read(store, queue="r") - read(store)) <= 1


def test_a_size_that_goes_down_and_up_again_starts_nothing_anew(store: Store) -> None:
    charge(store, "a", 3_000_000, -4, -3)
    charge(store, "a", 1_000_000, -3, -1)
    charge(store, "a", 2_000_000, -3, -2, state="draining")
    charge(store, "a", 3_000_000, -1, None)
    at_once = 3_000_000 * 0.5**4 * (1 - 0.5 ** (5 / 60))
    throughout = 3_000_000 * (1 - 0.5**4)
    gone = 2_000_000 * (0.5**1 - 0.5**2)
    assert abs(read(store) - (throughout - gone + at_once)) <= 4


def test_the_engine_counts_the_same(store: Store) -> None:
    charge(store, "a", 4_000_000, -3, None)
    charge(store, "b", 2_000_000, -2, -1)
    groups = (Group(("cpu",), (FlavorQuotas("f", {"cpu": CellQuota(9)}),)),)
    tree = QuotaTree(Configuration(queues={"q": Queue("q", "", groups)}), UndoLog())
    history = UsageHistory(tree, RULES, UndoLog())
    queue, cell = tree.queues["q"], Cell("f", "cpu")
    history.advance(1)
    for hours, change in ((-3, 4_000_000), (-2, 2_000_000), (-1, -2_000_000), (0, 0)):
        history.advance(1 + (hours + 3) * RULES.half_life)
        if change > 0:
            history.start("q", {cell: change})
        (tree.add if change > 0 else tree.remove)(queue, {cell: abs(change)}, CHARGED)
        history.observe()
    assert abs((history.averages()["q"]["cpu"] >> UNIT_BITS) - read(store)) <= 1
