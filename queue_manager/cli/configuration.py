"""`apply` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from queue_manager.cli.client import ApiProblem, Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, finding_text, print_data
from queue_manager.config.human import clean

YAML = "application/yaml"
SUFFIXES = (".yaml", ".yml", ".json")

Part = tuple[str, int]
"""(name of a file, line of the sent text at which it begins)."""


def apply(client: Client, files: Sequence[str], *, owner: str, prune: bool, reason: str, form: Format) -> None:
    """Sends all files as one request: everything is applied or nothing."""
    text, parts = _joined(_found(files))
    query = {"owner": owner, "prune": prune or "", "reason": reason}
    try:
        answer = client.put("/api/v1/config", text, YAML, query)
    except ApiProblem as problem:
        problem.errors = [_placed(finding, parts) for finding in problem.errors]
        raise
    answer["warnings"] = [_placed(finding, parts) for finding in answer["warnings"]]
    if form is not Format.TABLE:
        print_data(answer, form)
        return
    for warning in answer["warnings"]:
        print(f"warning: {clean(finding_text(warning))}", file=sys.stderr)
    for change in answer["changes"]:
        name = f"{change['namespace']}/{change['name']}" if change["namespace"] else change["name"]
        print(f"{change['kind']} {clean(name)} {change['action']}")
    print(
        f"revision {answer['revision']}" if answer["changes"] else f"nothing to change at revision {answer['revision']}"
    )


def _found(files: Sequence[str]) -> list[tuple[str, str]]:
    """(name, text) of every file; folders stand for the configuration files in them."""
    found = []
    for name in files:
        path = Path(name)
        if name == "-":
            found.append(("<stdin>", _decoded("<stdin>", sys.stdin.buffer.read())))
        elif path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise CommandError(f"no {', '.join(SUFFIXES)} file in {name}")
            found += [(str(each), _text(each)) for each in inside]
        else:
            found.append((name, _text(path)))
    return found


def _text(path: Path) -> str:
    try:
        return _decoded(str(path), path.read_bytes())
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror}") from None


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text", f"the first wrong byte is at {error.start}") from None


def _joined(files: Sequence[tuple[str, str]]) -> tuple[str, list[Part]]:
    text, parts = "", []
    for name, content in files:
        if text:
            text += ("" if text.endswith("\n") else "\n") + "---\n"
        parts.append((name, text.count("\n")))
        text += content
    return text, parts


def _placed(finding: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """The finding with the line of its own file instead of the line of the whole."""
    line = int(finding.get("line") or 0)
    if not line:
        return {**finding, "file": parts[0][0] if len(parts) == 1 and finding.get("kind") == "" else ""}
    name, start = next((name, start) for name, start in reversed(parts) if start < line)
    return {**finding, "file": name, "line": line - start}


def export(client: Client, form: Format) -> None:
    """Prints the whole configuration."""
    text = client.text("/api/v1/config")
    if form is Format.JSON:
        import yaml

        print_data([document for document in yaml.safe_load_all(text) if document], form)
    else:
        sys.stdout.write(text)
