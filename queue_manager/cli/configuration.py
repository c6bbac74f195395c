"""`apply`, `plan`, `diff` and `export`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from queue_manager.cli.changes import show_applied, show_difference, show_plan
from queue_manager.cli.client import ApiProblem, Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, print_data

SUFFIXES = (".yaml", ".yml", ".json")

Part = tuple[str, int]
"""(name of a file, line of the sent text at which it begins)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Files to apply, or the revision to go back to."""

    files: Sequence[str] = ()
    owner: str = ""
    prune: bool = False
    revision: int | None = None


def apply(client: Client, asked: Asked, *, reason: str, if_plan: str, form: Format) -> None:
    """Sends all files as one request: everything is applied or nothing."""
    show_applied(_send(partial(client.apply, reason=reason, if_plan=if_plan), asked), form)


def plan(client: Client, asked: Asked, form: Format) -> None:
    """What would change, and who feels it."""
    show_plan(_sent(client.plan, client.plan_rollback, asked), form, f"queue-manager {_command(asked)}")


def _command(asked: Asked) -> str:
    """What applies the same."""
    if asked.revision is not None:
        return f"rollback {asked.revision}"
    files = " ".join(f"-f {shlex.quote(name)}" for name in asked.files)
    owner = f" --owner {shlex.quote(asked.owner)}" if asked.owner else ""
    return f"apply {files}{owner}{' --prune' if asked.prune else ''}"


def diff(client: Client, asked: Asked, form: Format) -> None:
    """What would change."""
    show_difference(_sent(client.diff, client.diff_rollback, asked), form)


def _sent(of_files: Callable[..., Any], of_revision: Callable[[int], Any], asked: Asked) -> Any:
    return _send(of_files, asked) if asked.revision is None else of_revision(asked.revision)


def _send(send: Callable[..., Any], asked: Asked) -> Any:
    """The answer to all files as one text; findings have their own file and line."""
    text, parts = _joined(_found(asked.files))
    try:
        answer = send(text, owner=asked.owner, prune=asked.prune)
    except ApiProblem as problem:
        problem.errors = [_placed(finding, parts) for finding in problem.errors]
        raise
    answer["warnings"] = [_placed(finding, parts) for finding in answer["warnings"]]
    return answer


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
    text = client.export()
    if form in (Format.JSON, Format.NAME):
        import yaml

        documents = [document for document in yaml.safe_load_all(text) if document]
        print_data(documents, form, map(_name, documents))
    else:
        sys.stdout.write(text)


def _name(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return "/".join(part for part in (document["kind"], metadata.get("namespace", ""), metadata["name"]) if part)
