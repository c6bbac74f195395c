"""What is wrong with a scenario."""

from __future__ import annotations


class ScenarioError(Exception):
    """The scenario cannot be played: names the object and the field, and where it helps what would be right."""
