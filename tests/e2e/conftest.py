"""Fixtures: our processes on an empty control plane, with a database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_manager.store.store import Store
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.fixtures import (
    cluster,
    cluster_groups,
    cluster_of_each_trainer,
    cluster_stand_in,
    control_plane,
    control_plane_groups,
    control_plane_stand_in,
)
from tests.e2e.product import Product

__all__ = [
    "cluster",
    "cluster_groups",
    "cluster_of_each_trainer",
    "cluster_stand_in",
    "control_plane",
    "control_plane_groups",
    "control_plane_stand_in",
]


@pytest.fixture
def product(cluster: ControlPlane, store: Store, database_url: str, tmp_path: Path) -> Iterator[Product]:
    """Controller and webhook on the control plane with the real Trainer."""
    with Product(cluster, store, database_url, tmp_path).running() as running:
        yield running


@pytest.fixture
def product_of_each_trainer(
    cluster_of_each_trainer: ControlPlane, store: Store, database_url: str, tmp_path: Path
) -> Iterator[Product]:
    """The same on both variants of the control plane."""
    with Product(cluster_of_each_trainer, store, database_url, tmp_path).running() as running:
        yield running


@pytest.fixture
def product_stand_in(
    cluster_stand_in: ControlPlane, store: Store, database_url: str, tmp_path: Path
) -> Iterator[Product]:
    """The same with the stand-in for the newer Trainer alone."""
    with Product(cluster_stand_in, store, database_url, tmp_path).running() as running:
        yield running
