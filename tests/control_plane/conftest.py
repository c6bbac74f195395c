"""Fixtures of the tests of the test control plane itself."""

from tests.control_plane.fixtures import (
    cluster,
    cluster_of_each_trainer,
    cluster_stand_in,
    control_plane,
    control_plane_stand_in,
)

__all__ = ["cluster", "cluster_of_each_trainer", "cluster_stand_in", "control_plane", "control_plane_stand_in"]
