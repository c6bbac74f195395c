"""What request handlers share: the store, the clock, and the configuration of the newest revision."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request

from queue_manager.config.compiled import Compiled, to_engine
from queue_manager.config.compiled import Settings as CompiledSettings
from queue_manager.config.known import KnownObjects
from queue_manager.config.models import ConfigObject, RoleBinding, Settings
from queue_manager.config.stops import Stop, stops_of
from queue_manager.store import records
from queue_manager.store.store import Store

from .auth.access import Access, access_of, grants_of
from .auth.authentication import Authentication
from .auth.caller import Caller
from .auth.identity import LOCAL, Identity
from .auth.roles import Grant
from .kept import Kept
from .planning.elsewhere import PlannerElsewhere
from .planning.worker import Planner
from .problems import not_found
from .shared import Shared

CALLERS = 256
"""What so many callers may do is kept ready."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One revision of the configuration. `stored` are its rows, `objects` the same as models, without the `stops`. With
    `hides`, people see nothing outside the subtrees they have a role in."""

    revision: int
    stored: Sequence[records.ConfigObject]
    objects: Sequence[ConfigObject]
    compiled: Compiled
    stops: Sequence[Stop] = ()
    bindings: Sequence[RoleBinding] = ()
    hides: bool = False


class _Newest:
    """The revision that was read last, for all requests of a process, and what callers may do by it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: Loaded | None = None
        self.known = KnownObjects()
        self.access: dict[tuple[Grant, ...], Access] = {}

    def access_by(self, loaded: Loaded, caller: Identity) -> Access:
        """What the caller may do by a revision."""
        grants = grants_of(caller, loaded.bindings)
        if self.loaded is not loaded:
            return access_of(grants, loaded.compiled.tree, loaded.hides)
        access = self.access.get(grants)
        if access is None:
            access = access_of(grants, loaded.compiled.tree, loaded.hides)
            with self.lock:  # it may have been of an older revision by the time that it is ready
                if self.loaded is loaded:
                    if len(self.access) >= CALLERS:
                        self.access.clear()
                    self.access[grants] = access
        return access


class Context:
    """One per application; safe to use from several threads. Who changes the configuration holds `writing`, so that
    requests to one server wait for each other instead of failing. A request's own, `asked_by` somebody, shares all
    but `caller`."""

    caller: Identity = LOCAL
    authentication = Authentication()

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        patience: float = 0.0,
        *,
        shared: Shared | None = None,
        planner: Planner | PlannerElsewhere | None = None,
    ) -> None:
        """`patience`: seconds that a request waits for the leader to carry out what it asks for. The rest is of servers
        that have several processes."""
        self.store = store
        self.now = now
        self.patience = patience
        self.writing: AbstractContextManager[object] = shared.writing if shared is not None else threading.Lock()
        self.planner = planner or Planner(store.engine)
        self._newest = _Newest()
        self.kept = Kept()
        self._pinned: Loaded | None = None

    def asked_by(self, caller: Identity) -> Context:
        """The same for a request of somebody: `caller` is whose name goes into revisions and the audit log."""
        own = copy.copy(self)
        own.caller = caller
        return own

    def pinned(self) -> Context:
        """The same with the newest revision as of now, which is asked for no more: for a request that only reads."""
        own = copy.copy(self)
        own._pinned = self.configuration()
        return own

    def configuration(self) -> Loaded:
        """The newest revision; compiled once, not once a request."""
        if self._pinned is not None:
            return self._pinned
        number = self.revision()
        with self._newest.lock:
            if self._newest.loaded is None or self._newest.loaded.revision != number:
                self._newest.loaded = self._load()
                self._newest.access.clear()
            return self._newest.loaded

    def learn(self, rows: Iterable[records.ConfigObject], objects: Iterable[ConfigObject]) -> None:
        """That these rows are these objects, so that who reads the revision that has them need not read them again."""
        with self._newest.lock:
            self._newest.known.learn(rows, objects)

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see everything by the proof itself: no configuration has to be looked at for that."""
        return any(not grant.node for grant in self.caller.scopes)

    @property
    def access(self) -> Access:
        """What the caller may do by the newest revision."""
        return self.access_by(self.configuration())

    def access_by(self, loaded: Loaded) -> Access:
        """What the caller may do by a revision."""
        return self._newest.access_by(loaded, self.caller)

    def revision(self) -> int:
        """Number of the newest revision; asked at every request, so without the revision's diff."""
        return self.store.current_revision()

    def limits(self) -> tuple[int, int]:
        """Requests a second and at once for each token, as of the revision that was read last: nothing is read for
        this."""
        loaded = self._newest.loaded
        settings = loaded.compiled.settings if loaded is not None else CompiledSettings()
        return settings.requests_per_second, settings.request_burst

    def _load(self) -> Loaded:
        revision, stored = self.store.load_configuration()
        objects = self._newest.known.read(stored).objects
        stops = stops_of(stored)
        bindings = tuple(item for item in objects if isinstance(item, RoleBinding))
        hides = any(isinstance(item, Settings) and item.spec.access.outside == "Hidden" for item in objects)
        return Loaded(revision, stored, objects, to_engine(objects, revision, stops), stops, bindings, hides)

    def close(self) -> None:
        """Ends what runs beside the application; the store stays open."""
        self.planner.close()

    def queue_names(self, queue: str = "", cohort: str = "") -> tuple[str, ...] | None:
        """Names of the queues that a filter means, None for all; 404 when there is no such queue or cohort.

        A queue that is configured no more may still have workloads, so its name is taken as it is. Queues that the
        caller may not see are left out.
        """
        loaded = self.configuration()
        tree, access = loaded.compiled.tree, self.access_by(loaded)
        names: set[str] | None = None
        if queue:
            node = tree.find("Queue", queue)
            names = {node.name if node else queue}
        if cohort:
            node = tree.find("Cohort", cohort)
            if node is None or not access.sees(("Cohort", node.name)):
                raise not_found("cohort", cohort)
            below = set(tree.queues_below(node.name))
            names = below if names is None else names & below
        visible = access.visible_queues()
        if visible is not None:
            names = set(visible) if names is None else names & set(visible)
        return None if names is None else tuple(sorted(names))


def utc_now() -> datetime:
    """The time; a parameter everywhere else."""
    return datetime.now(UTC)


def context_of(request: Request, caller: Identity) -> Context:
    """The application's context, for this caller."""
    context: Context = request.app.state.context
    return context.asked_by(caller)


async def get_context(request: Request, caller: Caller) -> Context:
    """The same as a dependency; what waits for nothing needs no thread."""
    return context_of(request, caller)


Ctx = Annotated[Context, Depends(get_context)]
