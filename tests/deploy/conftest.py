"""Fixtures of the manifest's tests on the real API server."""

from tests.control_plane.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]
