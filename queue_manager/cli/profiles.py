"""Servers that people have given names, in a file of their own: `$XDG_CONFIG_HOME/queue-manager/profiles.json`.

It holds tokens, so only its owner may read it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from queue_manager.cli.errors import CommandError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MODE = 0o600


@dataclass(frozen=True, slots=True)
class Profile:
    """A server by its URL, or by the kubeconfig context of the cluster that it runs in."""

    server: str = ""
    context: str = ""
    kubeconfig: str = ""
    api_namespace: str = ""
    token: str = field(default="", repr=False)
    ca_file: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles, and the name of the one that counts where none is named ("" for none)."""

    current: str = ""
    named: Mapping[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        """The profile of this name; an error with the names there are."""
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none"
            raise CommandError(f"there is no profile {name!r}", f"known: {known}; see `queue-manager profile set`")
        return self.named[name]

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """The same with a profile added or replaced; the first one becomes the current one."""
        if not _NAME.fullmatch(name):
            raise CommandError(f"{name!r} is no name for a profile", "letters, digits, '.', '_' and '-', at most 63")
        return Profiles(self.current or name, {**self.named, name: profile})

    def without(self, name: str) -> Profiles:
        """The same without a profile."""
        self.get(name)
        rest = {each: profile for each, profile in self.named.items() if each != name}
        return Profiles("" if self.current == name else self.current, rest)

    def using(self, name: str) -> Profiles:
        """The same with another current one."""
        self.get(name)
        return replace(self, current=name)


def path() -> Path:
    """Where the file is."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    folder = Path(home) if home.startswith("/") else Path.home() / ".config"
    return folder / "queue-manager" / "profiles.json"


def load() -> Profiles:
    """The profiles of the user; none where there is no file."""
    file = path()
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            content = opened.read()
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandError(f"can't read {file}: {error.strerror}") from None
    if mode & 0o077:
        raise CommandError(f"others may read {file}, which holds tokens", f"take that away with `chmod 600 {file}`")
    try:
        return _read(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{file} is not as it should be: {error}", "correct it, or remove it and begin anew"
        ) from None


def _read(content: Any) -> Profiles:
    known = {each.name for each in fields(Profile)}
    named = {}
    for name, values in content["profiles"].items():
        unknown = set(values) - known
        if unknown or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"profile {name!r}: {', '.join(sorted(unknown)) or 'a value that is no text'}")
        named[name] = Profile(**values)
    current = content.get("current", "")
    if current and current not in named:
        raise ValueError(f"the current profile {current!r} is not there")
    return Profiles(current, named)


def save(profiles: Profiles) -> None:
    """Writes the file whole, so that a reader sees the old or the new one."""
    file = path()
    named = {
        name: {key: value for key, value in asdict(profile).items() if value}
        for name, profile in sorted(profiles.named.items())
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".profiles-")  # mkstemp makes it 0600
        with open(descriptor, "w", encoding="utf-8") as opened:
            json.dump({"current": profiles.current, "profiles": named}, opened, indent=2)
            opened.write("\n")
        os.replace(temporary, file)
    except OSError as error:
        raise CommandError(f"can't write {file}: {error.strerror}") from None
