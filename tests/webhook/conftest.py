"""Fixtures of the webhook's tests on the real API server."""

from tests.control_plane.fixtures import cluster, cluster_stand_in, control_plane, control_plane_stand_in

__all__ = ["cluster", "cluster_stand_in", "control_plane", "control_plane_stand_in"]
