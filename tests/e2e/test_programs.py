"""The commands of deploy/install.yaml as programs of their own; the other tests fork them (tests/e2e/forked.py)."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.control_plane.cluster import ControlPlane
from tests.e2e.product import Product, config, job, wait_for

pytestmark = pytest.mark.cluster


def test_controller_and_webhook_start_work_and_end_well_at_sigterm(
    cluster: ControlPlane, store: Store, database_url: str, tmp_path: Path
) -> None:
    product = Product(cluster, store, database_url, tmp_path)
    product.configure(config("Flavor", "plain"))
    namespace = cluster.new_namespace()
    with ExitStack() as ending:
        ending.callback(product.remove_webhooks)
        programs = []
        for role in (product.controller, product.webhook):
            log = ending.enter_context(role.log.open("ab"))
            program = subprocess.Popen(role.program, stdout=log, stderr=log, start_new_session=True)
            ending.callback(program.wait)
            ending.callback(program.kill)
            programs.append(program)
        product.wait_ready()
        wait_for(product.webhooks_work, "webhooks registered")
        product.client.create(job("lost", "nowhere"), namespace)
        product.wait_state(namespace, "lost", State.WAITING, reason="UnknownQueue")
        for program in programs:
            program.terminate()
        assert [program.wait(60) for program in programs] == [0, 0], product.controller.log.read_text()[-4000:]
