"""The store's face: every method is one transaction on the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Engine

from queue_manager.store import (
    audits,
    commit,
    configurations,
    facts,
    history,
    instructions,
    invariants,
    leases,
    listing,
    nodes,
    outboxes,
    past_rows,
    past_usage,
    sums,
    workloads,
)
from queue_manager.store.access import AccessStore
from queue_manager.store.allowances import Allowance
from queue_manager.store.audits import AuditEntry
from queue_manager.store.configurations import EVERY, Chosen, Key
from queue_manager.store.history import Kept
from queue_manager.store.leases import Lease
from queue_manager.store.listing import NEWEST_FIRST
from queue_manager.store.listing import Key as PageKey
from queue_manager.store.past_rows import PastRow
from queue_manager.store.records import (
    AdmissionRow,
    Change,
    Committed,
    ConfigObject,
    FailedTry,
    Instruction,
    NodeRow,
    OutboxEntry,
    Revision,
    State,
    Wish,
    WorkloadFilter,
    WorkloadRow,
)
from queue_manager.store.sums import UsageRow
from queue_manager.store.workloads import History

_TRIES = 5


class Store:
    """Synchronous and safe to use from several threads; SQLAlchemyError where the database fails, with nothing written.

    Times are passed in, so that a virtual clock works. Methods with an `epoch` raise StaleEpoch when it does not lead.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.access = AccessStore(engine)

    # --- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(self, name: str, holder: str, ttl: timedelta, now: datetime | None = None) -> int | None:
        """Takes the lease if it is free, expired or ours; its epoch, None when another holder has it.

        The epoch grows with every change of holder, so `holder` must be unique to a process. `now` is for virtual
        clocks: by default the database's clock counts, the same for all.
        """
        with self.engine.begin() as connection:
            return leases.acquire(connection, name, holder, ttl, now)

    def renew_lease(self, name: str, holder: str, epoch: int, ttl: timedelta, now: datetime | None = None) -> bool:
        """Prolongs the lease by `ttl` from now; False when somebody else has taken it since."""
        with self.engine.begin() as connection:
            return leases.renew(connection, name, holder, epoch, ttl, now)

    def release_lease(self, name: str, holder: str, epoch: int) -> None:
        """Lets the next one take it at once; our epoch is stale from now on."""
        with self.engine.begin() as connection:
            leases.release(connection, name, holder, epoch)

    def current_lease(self, name: str) -> Lease | None:
        """The lease as stored, expired or not."""
        with self._reading() as connection:
            return leases.current(connection, name)

    # --- decisions ------------------------------------------------------------------------------------------------

    def commit(
        self,
        epoch: int,
        revision: int | None,
        now: datetime,
        changes: Sequence[Change],
        known: Mapping[str, WorkloadRow] = MappingProxyType({}),
    ) -> Committed:
        """Writes decisions in one transaction and hints to listeners; what has moved since it was read is left out.

        StaleEpoch when `epoch` does not lead. StaleConfiguration when `revision` is given and not the newest; no newer
        one can come before this commit is done. A change is lost, whole, when the stored version of its row or of one
        of its `reads` differs, or when a row it reads has a change here that is lost. ValueError for changes that
        contradict themselves (a charged state without an admission). A row that ends without `finished_at` gets `now`.
        An admission with `ended_at` set is stored as ended. `known` are rows by uid as they were read or committed:
        what of a change is the same there, in a row of the same version, is not written again.
        """
        for attempt in range(_TRIES):
            try:
                with self.engine.begin() as connection:
                    return commit.commit(connection, epoch, revision, now, changes, known)
            except commit.InsertRace:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def load_workloads(self, ended: bool = False) -> list[WorkloadRow]:
        """All workloads by uid, with pod groups and open admission; those that ended only if asked for."""
        with self._reading() as connection:
            return workloads.load(connection, ended)

    def workload_versions(self) -> dict[str, int]:
        """The version of each workload that has not ended, by uid: what changed since they were read."""
        with self._reading() as connection:
            return workloads.versions(connection)

    def get_workloads(self, uids: Iterable[str]) -> list[WorkloadRow]:
        """The stored ones among `uids`, by uid."""
        with self._reading() as connection:
            return workloads.get(connection, sorted(set(uids)))

    # --- history --------------------------------------------------------------------------------------------------

    def move_to_history(self, before: datetime, limit: int) -> int:
        """Moves at most `limit` workloads that ended before into the history, oldest first; how many. They are read,
        listed and, where a job comes back to life, changed as before."""
        with self.engine.begin() as connection:
            return history.move(connection, before, limit)

    def keep_history(self, now: datetime, workloads_before: datetime, usage_before: datetime) -> Kept:
        """Makes partitions for this month and the next ones; drops the months that ended before these times: of
        workloads, and of the ledger."""
        with self.engine.begin() as connection:
            return history.keep(connection, now, workloads_before, usage_before)

    # --- instructions ---------------------------------------------------------------------------------------------

    def instruct(
        self,
        uid: str,
        wish: Wish,
        arguments: Mapping[str, Any],
        *,
        who: str,
        reason: str,
        source: str,
        now: datetime,
        address: str = "",
    ) -> int | None:
        """Notes what somebody asks of a workload, with its audit line, and tells the leader; its id, None when the
        workload is not stored any more."""
        with self.engine.begin() as connection:
            return instructions.add(
                connection, uid, wish, arguments, who=who, reason=reason, source=source, now=now, address=address
            )

    def pending_instructions(self, uid: str | None = None) -> list[Instruction]:
        """What is not carried out yet, of one workload or of all, in the order asked for."""
        with self._reading() as connection:
            return instructions.pending(connection) if uid is None else instructions.of_workload(connection, uid)

    def instruction_is_pending(self, id: int) -> bool:
        """Whether the leader has yet to carry it out."""
        with self._reading() as connection:
            return instructions.is_pending(connection, id)

    def refusal_of(self, object: str, id: int) -> str:
        """Why the leader did not carry out an instruction about that object (`instructions.object_name`); "" when it
        did, or has yet to."""
        with self._reading() as connection:
            return instructions.refusal_of(connection, object, id)

    def drop_instructions(self, epoch: int, ids: Sequence[int]) -> None:
        """Takes away what can't be carried out any more; unknown ids are ignored."""
        with self.engine.begin() as connection:
            leases.fence(connection, epoch)
            instructions.done(connection, ids)

    # --- outbox ---------------------------------------------------------------------------------------------------

    def pending_outbox(self) -> list[OutboxEntry]:
        """Everything not done, in the order decided."""
        with self._reading() as connection:
            return outboxes.pending(connection)

    def outbox_done(self, epoch: int, ids: Sequence[int], now: datetime) -> None:
        """Takes entries out; unknown ids are ignored."""
        with self.engine.begin() as connection:
            outboxes.done(connection, epoch, ids)

    def outbox_failed(self, epoch: int, tries: Sequence[FailedTry], now: datetime) -> None:
        """Notes failed tries, oldest first; each entry waits until the `not_before` of its last one."""
        with self.engine.begin() as connection:
            outboxes.failed(connection, epoch, tries)

    def outbox_age(self, now: datetime) -> timedelta:
        """Age of the oldest entry, zero when there is none."""
        with self._reading() as connection:
            return outboxes.age(connection, now)

    # --- nodes and facts ------------------------------------------------------------------------------------------

    def save_nodes(self, epoch: int, rows: Sequence[NodeRow], removed_names: Sequence[str], now: datetime) -> None:
        """Adds, replaces and removes nodes and notes that all are as of `now`."""
        with self.engine.begin() as connection:
            nodes.save(connection, epoch, rows, removed_names, now)

    def load_nodes(self) -> list[NodeRow]:
        """All nodes by name."""
        with self._reading() as connection:
            return nodes.load(connection)

    def save_namespaces(self, epoch: int, labels: Mapping[str, Mapping[str, str]], now: datetime) -> None:
        """Replaces the labels of all namespaces."""
        with self.engine.begin() as connection:
            nodes.save_namespaces(connection, epoch, labels, now)

    def load_namespaces(self) -> Mapping[str, Mapping[str, str]] | None:
        """The labels of each namespace as the leader last saved them, None when none ever did."""
        found: Mapping[str, Mapping[str, str]] | None = self.fact(nodes.NAMESPACES)
        return found

    def nodes_saved_at(self) -> datetime | None:
        """When the leader last saved the nodes."""
        with self._reading() as connection:
            return facts.written_at(connection, nodes.SEEN)

    def put_fact(self, name: str, value: Any, now: datetime | None = None) -> None:
        """Writes or replaces a fact of the installation, any JSON value."""
        with self.engine.begin() as connection:
            facts.put(connection, name, value, now)

    def fact(self, name: str) -> Any:
        """The value of a fact, None when there is none."""
        with self._reading() as connection:
            return facts.get(connection, name)

    # --- configuration --------------------------------------------------------------------------------------------

    def current_revision(self) -> int:
        """Number of the newest revision, 0 when there is none; without its objects and its diff."""
        with self._asking() as connection:
            return configurations.current_revision(connection)

    def load_configuration(self) -> tuple[int, list[ConfigObject]]:
        """The newest revision (0 when there is none) and its objects, by kind, namespace and name."""
        with self._reading() as connection:
            return configurations.load(connection)

    def configuration_at(self, revision: int) -> list[ConfigObject]:
        """The objects as they were at an older revision; LookupError when there was none of that number."""
        with self._reading() as connection:
            return configurations.load_at(connection, revision)

    def apply_configuration(
        self,
        objects: Sequence[ConfigObject],
        *,
        delete: Iterable[Key] = (),
        author: str,
        reason: str,
        now: datetime,
        expected_revision: int | None = None,
        source: str,
        address: str = "",
        allowed: Sequence[Allowance] | None = None,
    ) -> Revision:
        """Creates or replaces `objects` and deletes the (kind, namespace, name) of `delete`: one revision, with audit.

        When nothing changes there is no revision: the newest is returned (number 0 when there never was one).
        StaleConfiguration when `expected_revision` is given and not the newest. Waits for commits under way that were
        decided by the present revision. `allowed` takes the place of what is kept of the allowances of subtrees.
        """
        with self.engine.begin() as connection:
            return configurations.apply(
                connection,
                objects,
                delete,
                author=author,
                reason=reason,
                now=now,
                expected_revision=expected_revision,
                source=source,
                address=address,
                allowed=allowed,
            )

    def revisions(self, limit: int = 50, before: int | None = None, chosen: Chosen = EVERY) -> list[Revision]:
        """Revisions that fit all filters with a number below `before` (above it where the oldest come first)."""
        with self._reading() as connection:
            return configurations.revisions(connection, chosen, limit, before)

    def revision(self, number: int) -> Revision | None:
        """One revision, None when there is none of that number."""
        with self._reading() as connection:
            return configurations.revision(connection, number)

    # --- audit ----------------------------------------------------------------------------------------------------

    def audit(
        self,
        who: str,
        action: str,
        object: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        source: str,
        reason: str,
        now: datetime,
    ) -> None:
        """Adds a line to the audit log."""
        with self.engine.begin() as connection:
            audits.write(
                connection,
                who=who,
                action=action,
                object=object,
                before=before,
                after=after,
                source=source,
                reason=reason,
                now=now,
            )

    def audit_entries(self, limit: int = 50, before: int | None = None, object: str | None = None) -> list[AuditEntry]:
        """Lines with an id below `before`, newest first, of one object or of all."""
        with self._reading() as connection:
            return audits.entries(connection, limit, before, object)

    # --- queries of the API ---------------------------------------------------------------------------------------

    def list_workloads(
        self, filter: WorkloadFilter, cursor: str | None = None, limit: int = 100, sort: str = NEWEST_FIRST
    ) -> tuple[list[WorkloadRow], str | None]:
        """A page, sorted by a word of `listing.SORTS`, and the cursor of the next one, None at the end.

        New workloads never move what later pages show. BadCursor for a cursor that is none of ours.
        """
        with self._reading() as connection:
            return workloads.listed(connection, filter, sort, cursor, limit)

    def page_of_workloads(
        self, filter: WorkloadFilter, sort: str, cursor: str | None, limit: int
    ) -> tuple[list[PageKey], str | None]:
        """The same page without live workloads themselves: their uids and versions."""
        with self._asking() as connection:
            return listing.page(connection, filter, sort, cursor, limit, content=True)

    def past_of_keys(self, keys: Sequence[PageKey]) -> list[PastRow]:
        """Those of a part of a page that are in the history, as lists show them, in no order."""
        ended = [(key.uid, key.finished_at) for key in keys if key.finished_at is not None]
        with self._asking() as connection:
            return past_rows.of_keys(connection, [uid for uid, _ in ended], [end for _, end in ended])

    def workloads_of_keys(self, keys: Sequence[PageKey]) -> list[WorkloadRow]:
        """The workloads of a part of a page, in its order; what is stored no more is left out."""
        with self._reading() as connection:
            return workloads.of_keys(connection, keys)

    def find_workloads(
        self, namespace: str, name: str, kind: str | None = None, *, alive: bool = False
    ) -> list[WorkloadRow]:
        """Workloads of a name, newest first: kinds may share a name, and a name comes again. With `alive` those that
        have not ended, and ended ones only where there are no others."""
        with self._reading() as connection:
            return workloads.find(connection, namespace, name, kind, alive=alive)

    def charged_workloads(self, names: Sequence[tuple[str, str]]) -> list[WorkloadRow]:
        """Workloads of any of the names (namespace, name) that are admitted, in no order."""
        if not names:
            return []
        with self._reading() as connection:
            return workloads.charged(connection, names)

    def explanation(self, uid: str) -> Mapping[str, Any] | None:
        """Why the workload waits, in the API's shape; None when it does not wait or was not looked at yet."""
        with self._asking() as connection:
            return sums.explanation(connection, uid)

    def history(self, uid: str) -> History:
        """Its admissions and ledger intervals, oldest first."""
        with self._reading() as connection:
            return workloads.history(connection, uid)

    def admissions(self, uid: str) -> tuple[AdmissionRow, ...]:
        """Its admissions, oldest first."""
        with self._reading() as connection:
            return workloads.admissions_of(connection, uid)

    def usage(self) -> list[UsageRow]:
        """Sums of the open ledger intervals by queue, cell and ledger state. Used is reserved plus draining."""
        with self._reading() as connection:
            return sums.usage(connection)

    def past_usage(self, now: datetime, half_life: timedelta, at_once: timedelta) -> dict[str, dict[str, int]]:
        """Decayed usage by queue and resource, as the engine counts it."""
        with self._reading() as connection:
            return past_usage.past_usage(connection, now, half_life, at_once)

    def waiting_requests(self) -> dict[str, dict[str, int]]:
        """What waiting workloads need, by queue and resource."""
        with self._reading() as connection:
            return sums.waiting_requests(connection)

    def queue_counts(self) -> dict[str, dict[State, int]]:
        """Numbers of workloads that have not ended, by queue and state."""
        with self._reading() as connection:
            return sums.queue_counts(connection)

    def waiting_in(self, queue: str) -> int:
        """How many workloads wait in a queue."""
        with self._asking() as connection:
            return sums.waiting_in(connection, queue)

    def check(self, now: datetime) -> list[str]:
        """What contradicts the invariants, a sentence each; empty when all is well."""
        with self._reading() as connection:
            return invariants.check(connection, now)

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """For a single query, which needs no transaction around it."""
        with self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """One snapshot for all queries of a method."""
        with self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
