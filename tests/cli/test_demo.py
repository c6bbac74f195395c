"""The demo's configuration is one that a user could have written."""

from __future__ import annotations

from importlib.resources import files

from queue_manager.config.parse import parse
from queue_manager.config.validate import advise, validate


def test_demo_configuration_is_valid_and_without_warnings():
    result = parse(files("queue_manager.cli").joinpath("demo.yaml").read_text(), "demo.yaml")
    problems = [*result.errors, *validate(result.objects), *result.warnings, *advise(result.objects)]
    assert [str(problem) for problem in problems] == []
