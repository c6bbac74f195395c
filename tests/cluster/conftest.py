"""The real control plane for the tests that want it."""

from tests.control_plane.fixtures import control_plane, control_plane_stand_in

__all__ = ["control_plane", "control_plane_stand_in"]
