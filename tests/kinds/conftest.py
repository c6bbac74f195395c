"""Fixtures of the real control plane for the tests that hold the kinds against real controllers."""

from tests.control_plane.fixtures import cluster, cluster_stand_in, control_plane, control_plane_stand_in

__all__ = ["cluster", "cluster_stand_in", "control_plane", "control_plane_stand_in"]
