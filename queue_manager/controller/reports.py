"""What executors found out about workloads that is in no object: kept until the reconciler has made a change of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from queue_manager.store.records import ENDED, State, WorkloadRow


class Reports:
    """`rows` are the rows as committed; `touch` marks a workload to be looked at."""

    def __init__(self, rows: Mapping[str, WorkloadRow], touch: Callable[[str], None]) -> None:
        self._rows = rows
        self._touch = touch
        self._refused: dict[str, str] = {}
        self._refusals: dict[str, int] = {}
        self._troubles: dict[str, str] = {}
        self._told: dict[str, set[str]] = {}

    def refused(self, uid: str, message: str) -> None:
        """The start is refused for good."""
        row = self._rows.get(uid)
        if row is not None and row.state is State.STARTING:
            self._refused[uid] = message
            self._touch(uid)

    def stop_trouble(self, uid: str, message: str) -> None:
        """The workload can't be stopped, or not as usual; said once for each message."""
        row = self._rows.get(uid)
        if row is None or row.state is not State.DRAINING:
            return
        told = self._told.setdefault(uid, set())
        if message not in told:
            told.add(message)
            self._troubles[uid] = message
            self._touch(uid)

    def take_refusal(self, uid: str) -> tuple[str, int] | None:
        """Why its start is refused, and how many starts were before since it ran last; None when it is not."""
        message = self._refused.pop(uid, None)
        if message is None:
            return None
        before = self._refusals.get(uid, 0)
        self._refusals[uid] = before + 1
        return message, before

    def take_stop_trouble(self, uid: str) -> str:
        """What is in the way of its stop and not said yet; "" for nothing."""
        return self._troubles.pop(uid, "")

    def settled(self, row: WorkloadRow) -> None:
        """A row as committed: what was found out in an earlier state no longer counts."""
        if row.state is not State.STARTING:
            self._refused.pop(row.uid, None)
        if row.state is State.RUNNING or row.state in ENDED:
            self._refusals.pop(row.uid, None)
        if row.state is not State.DRAINING:
            self._troubles.pop(row.uid, None)
            self._told.pop(row.uid, None)

    def forget(self, uid: str) -> None:
        """The row is gone."""
        for told in (self._refused, self._refusals, self._troubles, self._told):
            told.pop(uid, None)
