"""The real control plane for the tests that want it."""

from tests.control_plane.fixtures import control_plane

__all__ = ["control_plane"]
