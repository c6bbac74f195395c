"""`Settings.spec.resources`: what it compiles to, what is refused, and Kueue's own form of it."""

from __future__ import annotations

import textwrap
from fractions import Fraction

import pytest

from queue_manager.config.compiled import to_engine
from queue_manager.config.parse import parse
from queue_manager.config.validate import advise, validate
from queue_manager.engine.resources import ResourceRules, Transformation

MAPPING = "deviceClassMappings: [{{name: gpus, deviceClassNames: [{}]}}]"


def settings(resources: str) -> str:
    head = "apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {name: default}\nspec:\n  resources:\n"
    return head + textwrap.indent(textwrap.dedent(resources), "    ")


def rules(text: str) -> ResourceRules:
    result = parse(text, "f.yaml")
    assert [str(error) for error in [*result.errors, *validate(result.objects)]] == []
    return to_engine(result.objects).configuration.resources


def test_rules_compile_and_nothing_of_them_is_without_effect():
    text = settings(
        """
        excludeResourcePrefixes: [example.com/]
        transformations:
          - {input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {gpu-memory: 5Gi, fraction: 0.125}}
          - {input: nvidia.com/gpu, multiplyBy: cpu, outputs: {paid: -2}}
        deviceClassMappings:
          - {name: gpus, deviceClassNames: [h100.nvidia.com, h200.nvidia.com]}
        """
    )
    assert rules(text) == ResourceRules(
        ("example.com/",),
        {
            "nvidia.com/mig-1g.5gb": Transformation(
                "nvidia.com/mig-1g.5gb",
                False,
                "",
                (("fraction", Fraction(1, 8)), ("gpu-memory", Fraction(5 * 2**30))),
            ),
            "nvidia.com/gpu": Transformation("nvidia.com/gpu", True, "cpu", (("paid", Fraction(-2)),)),
        },
        False,
        {"h100.nvidia.com": "gpus", "h200.nvidia.com": "gpus"},
    )
    assert advise(parse(text).objects) == []
    assert rules(settings("quotaCheckStrategy: IgnoreUndeclared")).ignore_undeclared


def test_kueues_own_configuration_gives_the_same_rules():
    kueue = """
        apiVersion: config.kueue.x-k8s.io/v1beta2
        kind: Configuration
        resources:
          transformations:
            - {input: nvidia.com/gpu, strategy: "", multiplyBy: "", outputs: {credits: 5}}
          deviceClassMappings:
            - name: gpus
              deviceClassNames: [h100.nvidia.com]
              sources: [{counter: {name: memory, driver: gpu.nvidia.com, deviceSelector: {cel: {expression: "true"}}}}]
    """
    text = textwrap.dedent(kueue).lstrip("\n")
    ours = settings(
        """
        transformations: [{input: nvidia.com/gpu, outputs: {credits: 5}}]
        deviceClassMappings: [{name: gpus, deviceClassNames: [h100.nvidia.com]}]
        """
    )
    assert rules(text) == rules(ours)
    assert "spec.resources.deviceClassMappings[0].sources" in [warning.field for warning in parse(text).warnings]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "transformations: [{input: gpu, outputs: {a: 1}}, {input: gpu, outputs: {b: 1}}]",
            "transformations[1].input: resource 'gpu' is transformed already",
        ),
        (
            "transformations: [{input: gpu, outputs: {a: much}}]",
            "transformations[0].outputs.a: 'much' is not a quantity",
        ),
        ("transformations: [{input: gpu, multiplyBy: 'a b'}]", "transformations[0].multiplyBy: 'a b' "),
        ("transformations: [{input: gpu, strategy: Drop}]", "transformations[0].strategy: "),
        (MAPPING.format(""), "deviceClassMappings[0].deviceClassNames: "),
        (
            MAPPING.format("a, b, a"),
            "deviceClassMappings[0].deviceClassNames[2]: device class 'a' is counted as gpus already",
        ),
        (
            "excludeResourcePrefixes: [a/]\nquotaCheckStrategy: IgnoreUndeclared",
            "excludeResourcePrefixes: can't stand beside quotaCheckStrategy IgnoreUndeclared",
        ),
        ("excludeResourcePrefixes: [a/, '']", "excludeResourcePrefixes[1]: must not be empty"),
        (
            "transformations: [{input: gpu, multiplyBy: gpu}]",
            "transformations[0].multiplyBy: multiplies 'gpu' by itself",
        ),
        (
            "deviceClassMappings: [{name: g, deviceClassNames: [a]}, {name: g, deviceClassNames: [b]}]",
            "deviceClassMappings[1].name: resource 'g' has a mapping already",
        ),
    ],
)
def test_a_mistake_names_its_field(resources: str, expected: str):
    result = parse(settings(resources), "f.yaml")
    found = [str(problem) for problem in [*result.errors, *validate(result.objects)]]
    assert len(found) == 1
    assert f"Settings default: spec.resources.{expected}" in found[0]
