"""Where the webhook's certificates are kept: a folder of one machine, or a Secret that all replicas share."""

from __future__ import annotations

import base64
import hashlib
import os
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from queue_manager.cluster.port import SECRETS, ApiError, Cluster, Object, PatchType
from queue_manager.webhook.certificates import Certificates, Conflict

FILES = {
    "authority": "ca.crt",
    "authority_key": "ca.key",
    "serving": "tls.crt",
    "serving_key": "tls.key",
    "old_authority": "ca-old.crt",
}
"""Field of Certificates -> name of its file, or key of the Secret."""


def _certificates(files: Mapping[str, bytes]) -> Certificates | None:
    """The certificates in files by name; None when one that is needed lacks."""
    found = {field: files.get(name, b"") for field, name in FILES.items()}
    if not all(found[field] for field in FILES if field != "old_authority"):
        return None
    return Certificates(**found)


class FolderStore:
    """Files that only their owner can read, for a server on the same machine (`queue-manager up`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self) -> tuple[Certificates | None, str]:
        """See CertificateStore. The version is a digest of the content."""
        files: dict[str, bytes] = {}
        for name in FILES.values():
            try:
                files[name] = (self._folder / name).read_bytes()
            except FileNotFoundError:
                continue
        if not files:
            return None, ""
        digest = hashlib.sha256(b"\0".join(name.encode() + b"=" + files[name] for name in sorted(files)))
        return _certificates(files), digest.hexdigest()

    async def write(self, certificates: Certificates, version: str) -> None:
        """See CertificateStore. Each file is replaced whole; a crash in between leaves a pair that does not match, and
        the next start renews it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (await self.read())[1] != version:
            raise Conflict(f"another process has written certificates into {self._folder}")
        for field, content in asdict(certificates).items():
            path = self._folder / FILES[field]
            partial = path.with_name(path.name + ".partial")
            partial.unlink(missing_ok=True)
            _write_private(partial, content)
            partial.replace(path)


def _write_private(path: Path, content: bytes) -> None:
    """Writes a new file that only its owner can read from the first byte on."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class SecretStore:
    """A Secret; its resourceVersion decides who of several replicas wins."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "queue-manager-webhook-certificate") -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.name = name

    async def read(self) -> tuple[Certificates | None, str]:
        """See CertificateStore. A Secret without usable content counts as empty."""
        try:
            secret = await self._cluster.get(SECRETS, self._namespace, self.name)
        except ApiError as error:
            if error.not_found:
                return None, ""
            raise
        try:
            files = {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
        except Base64Error:
            files = {}
        return _certificates(files), secret["metadata"]["resourceVersion"]

    async def write(self, certificates: Certificates, version: str) -> None:
        """See CertificateStore."""
        data = {FILES[field]: base64.b64encode(content).decode() for field, content in asdict(certificates).items()}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}, "data": data}
        try:
            if version:
                body["metadata"]["resourceVersion"] = version
                await self._cluster.patch(SECRETS, self._namespace, self.name, body, PatchType.MERGE)
            else:
                await self._cluster.create(SECRETS, self._namespace, body)
        except ApiError as error:
            if error.conflict or error.not_found:
                raise Conflict(str(error)) from error
            raise
