"""What the leader knows in memory: rows as committed, the engine's state, the watch caches, and the sums over pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from queue_manager.cluster.cache import controller_of
from queue_manager.cluster.nodes import readable_node
from queue_manager.cluster.port import JOB_SETS, JOBS, NODES, PODS, Object
from queue_manager.config.compiled import Compiled, compile_objects
from queue_manager.controller.drain import unsettled
from queue_manager.controller.intake import Intake
from queue_manager.controller.kubernetes_groups import KubernetesGroups
from queue_manager.controller.owners import Owners
from queue_manager.controller.plain_groups import PlainGroups
from queue_manager.controller.pod_table import Pod, PodTable
from queue_manager.controller.readings import Readings
from queue_manager.controller.resolutions import Resolutions
from queue_manager.controller.rows import Rows
from queue_manager.controller.sites import Sites
from queue_manager.controller.view import ClusterView
from queue_manager.engine.engine import Engine
from queue_manager.engine.workload import Workload
from queue_manager.kinds.annotations import checkpointed_at
from queue_manager.kinds.gates import TOPOLOGY_GATE
from queue_manager.kinds.kind import Kind, Placement, PodPlacement
from queue_manager.kinds.plain_shapes import SHAPE
from queue_manager.kinds.registry import KINDS
from queue_manager.store.asked import workload_of
from queue_manager.store.deadlines import STARTED
from queue_manager.store.readings import basis_of
from queue_manager.store.records import CHARGED, ENDED, NodeRow, State, WorkloadRow

TAKES_THE_PLACE = frozenset({"PreemptionByScheduler", "DeletionByTaintManager"})
"""Reasons of a disruption after which a pod of the same kind can't have the place again at once."""
KIND_OF: Mapping[str, Kind] = {kind.resource.kind: kind for kind in KINDS}


class Picture:
    """Built anew for each term. `drained` are workloads of which an executor proved that no pod is left, `unplaced`
    those that wait for other nodes for some of their pods."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.rows = Rows()
        self.engine = Engine()
        self.compiled: Compiled = compile_objects(())
        self.basis = basis_of(self.compiled)
        view.kueue_labels = lambda: self.compiled.settings.kueue_labels
        self.pods = PodTable()
        self.owners = Owners()
        self.drained: set[str] = set()
        self.not_ready: set[str] = set()
        self.unplaced: set[str] = set()
        self.sites = Sites(lambda name: view.get(NODES, "", name))
        self.readings = Readings()
        self._resolutions = Resolutions()
        self.plain = PlainGroups(view, lambda uid: view.by_uid(PODS, uid), self.rows, self.answers_for)
        view.add(self.plain.collections())
        self.kubernetes_groups = KubernetesGroups(view, self.owners)
        self.intake = Intake(
            view,
            lambda: self.compiled,
            lambda obj, kind: self.kubernetes_groups.of(obj["metadata"]["uid"], obj, kind),
            self._resolutions.resolve,
        )

    def answers_for(self, obj: Object) -> bool:
        """Whether an object speaks for all that it owns: it is managed, or was when it was taken in, and its workload
        is not over."""
        row = self.rows.get(obj["metadata"].get("uid", ""))
        return (row is not None and row.state not in ENDED) or self.intake.is_managed(obj)

    def others_changed(self) -> None:
        """Something that the reading of objects depends on beside themselves has changed."""
        self.readings.others_changed()
        self._resolutions.forget()

    def note_readiness(self, row: WorkloadRow) -> None:
        """Keeps count of who was started, or will be once its checks agree, and is not ready."""
        admission = row.admission
        starts = row.state in STARTED or row.state is State.RESERVED
        if admission is not None and starts and (admission.ready_at is None or admission.unready_at is not None):
            self.not_ready.add(row.uid)
        else:
            self.not_ready.discard(row.uid)
        if admission is not None and admission.unplaced_at is not None and row.state is not State.DRAINING:
            self.unplaced.add(row.uid)
        else:
            self.unplaced.discard(row.uid)

    def configure(self, compiled: Compiled) -> None:
        """The configuration that decides from now on."""
        self.compiled = compiled
        if (basis := basis_of(compiled)) != self.basis:
            self.basis = basis
            self.readings.others_changed()
        self.engine.configure(compiled.configuration)
        for row in self.rows.values():
            if row.admission is not None:
                self.refresh(row)

    def refresh(self, row: WorkloadRow) -> None:
        """Tells the engine of a running workload what may change without a change of its row: its checkpoints, how long
        its priority class protects it."""
        if row.state in STARTED:
            self.engine.upsert_workload(self.workload(row))

    def kind_of(self, row: WorkloadRow) -> Kind:
        """The kind of the row's object."""
        return KIND_OF[row.kind]

    def object_of(self, row: WorkloadRow) -> Object | None:
        """The newest state known of the row's object; None when it is gone."""
        return self.view.by_uid(self.kind_of(row).resource, row.uid)

    def find(self, uid: str, row: WorkloadRow | None) -> tuple[Object | None, Kind | None]:
        """The object of a uid and its kind; without a row any kind is looked through."""
        kinds: Iterable[Kind] = KINDS if row is None else (self.kind_of(row),)
        for kind in kinds:
            obj = self.view.by_uid(kind.resource, uid)
            if obj is not None:
                return obj, kind
        return None, None if row is None else self.kind_of(row)

    def placement_of(self, row: WorkloadRow) -> Placement:
        """What the pods of an admitted workload must carry."""
        assert row.admission is not None
        return {
            pod_set.name: PodPlacement(
                count=pod_set.count,
                node_selector=dict(pod_set.selector),
                tolerations=pod_set.tolerations,
                gates=(TOPOLOGY_GATE,) if pod_set.pinned else (),
            )
            for pod_set in row.admission.admission.pod_sets
        }

    def unsettled(self, uid: str, obj: Object | None) -> str:
        """What can still make pods for the workload, in words; "" when nothing can."""
        if found := unsettled(uid, obj, self.view):
            return found
        # A deleted job's JobSet is collected before its Jobs.
        for child in sorted(self.owners.below(uid)) if obj is None else ():
            left = self.view.by_uid(JOBS, child) or self.view.by_uid(JOB_SETS, child)
            if left is not None:
                return f"{left['kind']} {left['metadata']['name']} is not deleted yet"
        return ""

    def root_of(self, pod: Object) -> str:
        """The uid of the workload that a pod is of, or would be; "" for pods of nobody."""
        if (plain := self.plain.root(pod)) is not None:
            return plain
        owner = controller_of(pod)
        return self.owners.root(owner["uid"]) if owner is not None else ""

    def place_pod(self, pod: Pod, root: str) -> None:
        """Counts a pod for the workload at the top of its owners."""
        row = self.rows.get(root)
        told = {"metadata": {"labels": dict(pod.labels)}, SHAPE: pod.shape}
        pod_set = self.kind_of(row).pod_set_of(told) if row else ""
        self.pods.put(pod, root, pod_set)

    def pods_of(self, uid: str) -> list[Object]:
        """The pods of a workload that have not ended, as the caches show them; of plain pods all."""
        if plain := self.plain.pods_of(uid):
            return plain
        found = (self.view.by_uid(PODS, pod.uid) for pod in self.pods.pods_of(uid))
        return [pod for pod in found if pod is not None]

    def bind(self, row: WorkloadRow) -> None:
        """Tells the engine where the pods of an admitted workload are bound, and which of them go: those that are being
        deleted, and those on nodes that are lost."""
        assert row.admission is not None
        bound, leaving = self.pods.bound(row.uid), self.pods.leaving(row.uid)
        on: set[str] = set()
        for pod_set in row.admission.admission.pod_sets:
            there, going = bound.get(pod_set.name, {}), dict(leaving.get(pod_set.name, {}))
            on |= there.keys() | self.sites.planned(row.uid, pod_set).keys()
            stay = {name: count for name, count in there.items() if self.sites.lost(name) is None}
            for name in there.keys() - stay.keys():
                going[name] = going.get(name, 0) + there[name]
            self.engine.bind(row.uid, pod_set.name, stay, going)
        self.sites.put(row.uid, on)

    def contested(self, uid: str) -> frozenset[str]:
        """Nodes from which somebody takes pods of the workload away for his own, as long as they are still there."""
        taken = (pod for pod in self.pods.pods_of(uid) if pod.disruption is not None and pod.node)
        return frozenset(pod.node for pod in taken if pod.disruption and pod.disruption.reason in TAKES_THE_PLACE)

    def tell_engine(self, old: WorkloadRow | None, row: WorkloadRow) -> None:
        """Brings the engine's picture of a workload from `old` to `row`."""
        if row.state in ENDED or (row.state is not State.WAITING and row.state not in CHARGED) or not row.queue:
            if old is None or row.state in ENDED or old.state not in CHARGED:
                self.engine.remove_workload(row.uid)
            elif old.state in CHARGED:
                self.engine.release(row.uid)
                self.engine.remove_workload(row.uid)
            if row.admission is None:
                return
        if row.state is State.WAITING and old is not None and old.state in CHARGED:
            self.engine.release(row.uid)
        if row.state in ENDED:
            return
        self.engine.upsert_workload(self.workload(row))
        if row.admission is None:
            return
        if old is None or old.admission is None:
            self.engine.restore_admission(
                row.admission.admission, draining=row.state is State.DRAINING, evicted_by=row.admission.by
            )
            self.pods.charge(row.uid, True)
            self.sites.suspects.add(row.uid)
            self.bind(row)
        elif row.state is State.DRAINING and old.state is not State.DRAINING:
            if row.admission.by:
                self.engine.restore_admission(row.admission.admission, draining=True, evicted_by=row.admission.by)
                self.bind(row)
            else:
                self.engine.evict(row.uid)
        elif row.state is not State.DRAINING and row.admission.admission != old.admission.admission:
            self.engine.restore_admission(row.admission.admission)
            self.bind(row)

    def workload(self, row: WorkloadRow) -> Workload:
        """A row as the engine takes it, with what only its object tells and what its priority class says now."""
        obj = self.object_of(row)
        saved = 0 if obj is None else checkpointed_at(obj)
        return workload_of(row, self.compiled, self.intake.namespace_labels(row.namespace), saved)

    def refresh_node(self, name: str, now: datetime) -> frozenset[str]:
        """Tells the engine what a node looks like now, and what nobody's pods take of it; answers who is on it."""
        self.refresh_use(name)
        on_it = self.sites.look(name, now, timedelta(microseconds=self.compiled.settings.unhealthy_after))
        self.pods.dirty_bindings |= on_it
        return on_it

    def refresh_use(self, name: str) -> None:
        """Tells the engine what nobody's pods take of a node now."""
        found = self.view.get(NODES, "", name)
        if found is None:
            self.engine.remove_node(name)
        else:
            self.engine.upsert_node(readable_node(found, self.pods.foreign(name)))

    def displaced(self, names: Iterable[str]) -> set[str]:
        """Workloads that may have lost a place to what nobody's pods take of these nodes: they are overbooked now."""
        return {uid for name in names if self.engine.is_overbooked(name) for uid in self.sites.suspect(name)}

    def node_row(self, name: str) -> NodeRow | None:
        """A node for the store; None when it is gone."""
        found = self.view.get(NODES, "", name)
        if found is None:
            return None
        node = readable_node(found, {})
        return NodeRow(
            name=name,
            labels=node.labels,
            taints=node.taints,
            allocatable=node.allocatable,
            foreign=self.pods.foreign(name),
            ready=node.ready,
            unschedulable=node.unschedulable,
        )

    def forget(self, uid: str) -> None:
        """The workload ended, or its row is gone."""
        self.engine.remove_workload(uid)
        row = self.rows.forget(uid)
        if row is not None:
            self.view.drop_snapshot(row.namespace, row.name)
        self.readings.forget(uid)
        self.pods.charge(uid, False)
        self.owners.forget(uid)
        self.drained.discard(uid)
        self.not_ready.discard(uid)
        self.unplaced.discard(uid)
        self.sites.put(uid, set())
