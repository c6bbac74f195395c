"""JSON Schema of the configuration: for editors, and for whoever checks a file before it is applied.

Made from the models that `apply` reads with, so the two can't differ in fields, types or allowed words. What one object
alone can't tell (references, the tree, limits against quotas) is left to `plan` and `apply`.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from queue_manager.config.models import API_VERSION, KINDS
from queue_manager.config.parse import ALIASES

SCHEMA_ID = "https://queue-manager.io/schema/v1/configuration.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def configuration_schema() -> dict[str, Any]:
    """The schema of one configuration object of any kind. Objects of Kueue are let through: `apply` reads them too."""
    _, found = models_json_schema([(model, "validation") for model in KINDS.values()], ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = found["$defs"]
    for kind in KINDS:
        _complete(kind, definitions)
    return {
        "$schema": DRAFT,
        "$id": SCHEMA_ID,
        "title": "Configuration object of Queue Manager",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"type": "string", "examples": [API_VERSION]},
            "kind": {"type": "string", "examples": list(KINDS)},
        },
        "if": {"properties": {"apiVersion": {"const": API_VERSION}}},
        "then": {
            "properties": {"kind": {"enum": list(KINDS)}},
            "allOf": [_when(kind) for kind in KINDS],
        },
        "else": {"properties": {"apiVersion": {"pattern": r"^(config\.)?kueue\.x-k8s\.io/"}}},
        "$defs": definitions,
    }


def _when(kind: str) -> dict[str, Any]:
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}}


def _complete(kind: str, definitions: dict[str, Any]) -> None:
    """What `parse` asks for and the model leaves open: the version must be said, and Kueue's names of fields count."""
    definition = definitions[kind]
    definition["required"] = ["apiVersion", *(name for name in definition["required"] if name != "apiVersion")]
    spec = definitions[f"{kind}Spec"]
    for alias, name in ALIASES.get(kind, {}).items():
        spec["properties"][alias] = {**spec["properties"][name], "deprecated": True, "description": f"See {name}."}
        required = spec.get("required", [])
        if name in required:
            required.remove(name)
            spec["anyOf"] = [{"required": [name]}, {"required": [alias]}]
