"""A gang of 512 pods: one admission, one transaction, and how soon it runs."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

from sqlalchemy import text

from benchmarks.report import Report
from benchmarks.timeline import Timeline
from benchmarks.world import World, world
from queue_manager.store.records import State
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, POD, TOPOLOGY, TRAIN_JOB, Product, queue, train_job, wait_for

FLEETS = {"full": (4, 16, 8), "small": (1, 2, 4)}
"""Blocks, racks in each, nodes in each: one pod of 8 GPUs a node."""

# The benchmark's own: every change of these tables with the transaction that made it.
_NOTES = """
CREATE TABLE bench_notes (xid xid8, relation text, operation text, at timestamptz);
CREATE FUNCTION bench_note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  INSERT INTO bench_notes VALUES (pg_current_xact_id(), TG_TABLE_NAME, TG_OP, clock_timestamp());
  RETURN NULL;
END $$;
"""
_WATCHED = ("workloads", "admissions", "ledger", "outbox")


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: a TrainJob of the fleet's size, on an empty fleet."""
    blocks, racks, hosts = FLEETS[size]
    pods = blocks * racks * hosts
    report = Report(f"gang: a TrainJob of {pods} pods with 8 GPUs each on {pods} nodes (Trainer v2.0)")
    with world(keep) as made, made.product.running() as product:
        made.cluster.create_nodes(gpu_fleet(blocks, racks, hosts), timeout=180)
        product.configure(TOPOLOGY, FLAVOR, queue("team", 8 * pods))
        wait_for(lambda: _nodes_seen(made) == pods, "the controller knows all nodes", 120)
        time.sleep(2)
        _take_notes(made)
        _measure(made, product, pods, report)
    return [report]


def _measure(made: World, product: Product, pods: int, report: Report) -> None:
    namespace = made.cluster.new_namespace("bench")
    jobs, running = Timeline(product.client, TRAIN_JOB, namespace), Timeline(product.client, POD, namespace)
    began = time.perf_counter()
    product.client.create(train_job("gang", "team", nodes=pods), namespace)
    started = jobs.wait(lambda obj: not obj["spec"].get("suspend")).at
    names: set[str] = set()

    def all_run(pod: dict[str, dict[str, str]]) -> bool:
        if pod["status"].get("phase") == "Running":
            names.add(pod["metadata"]["name"])
        return len(names) == pods

    everything = running.wait(all_run, 600).at
    first = next(seen.at for seen in running.all() if seen.type == "ADDED")
    report.value("created -> suspend: false", f"{1000 * (started - began):.0f} ms")
    report.value("suspend: false -> first pod created", f"{1000 * (first - started):.0f} ms")
    report.value(f"created -> all {pods} pods run", f"{everything - began:.1f} s")
    row = product.wait_state(namespace, "gang", State.RUNNING)
    _account(made, row.uid, pods, report)
    report.note("from suspend: false on it is Trainer, JobSet, the Job controller, kube-scheduler and kwok that work")


def _nodes_seen(made: World) -> int:
    with made.store.engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM nodes")).scalar_one())


def _take_notes(made: World) -> None:
    with made.store.engine.begin() as connection:
        connection.execute(text(_NOTES))
        for table in _WATCHED:
            connection.execute(
                text(
                    f"CREATE TRIGGER bench_note AFTER INSERT OR UPDATE ON {table}"
                    " FOR EACH ROW EXECUTE FUNCTION bench_note()"
                )
            )


def _account(made: World, uid: str, pods: int, report: Report) -> None:
    """What the tables say: how many admissions, and which transactions wrote what."""
    with made.store.engine.connect() as connection:
        admissions = connection.execute(
            text(
                "SELECT count(*), sum(p.count) FROM admissions JOIN pod_sets p USING (workload_uid)"
                " WHERE workload_uid = :uid"
            ),
            {"uid": uid},
        ).one()
        ledger = connection.execute(
            text("SELECT flavor, resource, amount, xmin::text FROM ledger WHERE workload_uid = :uid"), {"uid": uid}
        ).all()
        notes = connection.execute(text("SELECT xid::text, relation, operation, at FROM bench_notes ORDER BY at")).all()
    transactions: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    admitting = set()
    for xid, relation, operation, _ in notes:
        transactions[xid][f"{relation} {operation.lower()}"] += 1
        if (relation, operation) == ("admissions", "INSERT"):
            admitting.add(xid)
    report.value("admissions / pods admitted", f"{admissions[0]} / {admissions[1]}", f"1 / {pods}")
    report.value("transactions that admitted", str(len(admitting)), "1")
    report.value(
        "ledger",
        ", ".join(f"{amount} {resource} of {flavor} in transaction {xid}" for flavor, resource, amount, xid in ledger),
    )
    for xid, changes in transactions.items():
        words = ", ".join(f"{count} x {what}" for what, count in sorted(changes.items()))
        report.note(f"transaction {xid}{' (the admission)' if xid in admitting else ''}: {words}")
