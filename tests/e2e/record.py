"""What happened on the way: every state of watched objects, and the ledger's intervals.

Looking again and again misses what lasts a moment; a watch from the start and the ledger do not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text

from tests.control_plane.client import CRD
from tests.e2e.product import GPU, POD, Object, Product, wait_for
from tests.e2e.runtimes import JOB_SET_NAME, REPLICATED_JOB

ENDED = ("Succeeded", "Failed")


class Record:
    """The watch events of one kind in a namespace, in order, for as long as it is open."""

    def __init__(self, product: Product, namespace: str, kind: str) -> None:
        self._client, self._namespace, self._kind = product.client, namespace, kind
        self._events: list[Object] = []
        self._error: Exception | None = None
        listed = self._client.request("GET", self._client.path(kind, None, namespace))
        self._version = listed["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for event in self._client.watch(self._kind, self._namespace, resource_version=self._version, timeout=300):
                self._events.append(event)
        except Exception as error:
            self._error = error

    def events(self) -> list[Object]:
        """All events up to now: those of changes that are made before this call are among them."""
        marker = self._client.request("GET", self._client.path(self._kind, None, self._namespace))
        newest = max((int(item["metadata"]["resourceVersion"]) for item in marker["items"]), default=0)

        def arrived() -> bool:
            assert self._error is None, self._error
            versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in self._events]
            gone = {e["object"]["metadata"]["uid"] for e in self._events if e["type"] == "DELETED"}
            seen = {e["object"]["metadata"]["uid"] for e in self._events if e["type"] != "BOOKMARK"}
            there = {item["metadata"]["uid"] for item in marker["items"]}
            return max(versions, default=0) >= newest and seen - gone == there

        wait_for(arrived, f"the watch of {self._kind} caught up")
        return [event for event in self._events if event["type"] != "BOOKMARK"]

    def states(self, name: str) -> list[Object]:
        """Every state the object of that name had, oldest first."""
        return [e["object"] for e in self.events() if e["object"]["metadata"]["name"] == name]


@contextmanager
def recorded(product: Product, namespace: str, kind: str = POD) -> Iterator[Record]:
    """Records a namespace's objects of the kind; begin before they are made."""
    yield Record(product, namespace, kind)


def alive_together(record: Record) -> set[frozenset[tuple[str, str]]]:
    """Which (job set, replicated job) had pods that had not ended at the same time, at each moment of the record."""
    live: dict[str, tuple[str, str]] = {}
    seen = set()
    for event in record.events():
        pod = event["object"]
        if event["type"] == "DELETED" or pod.get("status", {}).get("phase") in ENDED:
            live.pop(pod["metadata"]["uid"], None)
        else:
            labels = pod["metadata"]["labels"]
            live[pod["metadata"]["uid"]] = (labels[JOB_SET_NAME], labels[REPLICATED_JOB])
        seen.add(frozenset(live.values()))
    return seen


def peak_charge(product: Product, queue: str, resource: str = GPU) -> int:
    """The most that was charged to the queue at any moment, by the ledger's intervals."""
    query = text(
        "SELECT since, until, amount FROM ledger"
        " WHERE queue = :queue AND resource = :resource AND state <> 'reclaimed-loan'"
    )
    with product.store.engine.connect() as connection:
        rows = connection.execute(query, {"queue": queue, "resource": resource}).all()
    return max(
        (
            sum(row.amount for row in rows if row.since <= moment and (row.until is None or row.until > moment))
            for moment in {row.since for row in rows}
        ),
        default=0,
    )


def on_loan(product: Product, queue: str, resource: str = GPU) -> int:
    """What finished pods of running workloads lend now, by the ledger."""
    query = text(
        "SELECT coalesce(sum(amount), 0) FROM ledger"
        " WHERE queue = :queue AND resource = :resource AND until IS NULL AND state = 'reclaimed-loan'"
    )
    with product.store.engine.connect() as connection:
        return int(connection.execute(query, {"queue": queue, "resource": resource}).scalar_one())


def admissions(product: Product, namespace: str, name: str) -> int:
    """How often it was admitted."""
    row = product.row(namespace, name)
    return len(product.store.history(row.uid).admissions) if row is not None else 0


def told(product: Product, namespace: str, name: str, reason: str, words: str = "") -> str:
    """Waits for an event of ours on the object with this reason and these words; its message."""

    def check() -> str:
        found = [m for r, m in product.events(namespace, name) if r == reason and words in m]
        return found[-1] if found else ""

    try:
        return str(wait_for(check, ""))
    except AssertionError:
        raise AssertionError(f"no event {reason} ({words}) on {name}: {product.events(namespace, name)}") from None


def annotated(product: Product, kind: str, namespace: str, name: str, state: str, words: str) -> None:
    """Waits until our annotations on the object say this state, with these words in the message.

    A reason that changes within a minute is written at the end of that minute.
    """

    def check() -> bool:
        found = product.client.get(kind, name, namespace)["metadata"].get("annotations", {})
        return found.get("queue-manager.io/state") == state and words in found.get("queue-manager.io/message", "")

    wait_for(check, f"annotations of {name} say {state}: {words}", 120)


def has_snapshots(product: Product) -> bool:
    """Whether this Trainer works from a snapshot of the runtime, taken when it first sees a TrainJob."""
    crd = product.client.get(CRD, "trainjobs.trainer.kubeflow.org")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return "runtimePatches" in schema["properties"]["spec"]["properties"]
