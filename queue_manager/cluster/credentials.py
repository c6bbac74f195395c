"""Where the API server is and how we prove who we are, read by the official `kubernetes` package."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass


class CredentialsError(Exception):
    """The kubeconfig or service account can't be used. The message names the file, never a secret."""


@dataclass(frozen=True, slots=True)
class Access:
    """One reading of the credentials. `authorization` is the header's value and stays out of every repr."""

    host: str
    authorization: str | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    server_name: str | None = None
    proxy: str | None = None


class Credentials:
    """Reads the access again when asked. All methods block (files, exec plugins): call them in a thread."""

    def __init__(self, load: Callable[[Any], None], origin: str) -> None:
        self._load = load
        self._origin = origin
        self._configuration: Any = None
        self._tls: tuple[tuple[Any, ...], ssl.SSLContext] | None = None

    @classmethod
    def kubeconfig(cls, path: str = "", context: str = "") -> Credentials:
        """From a kubeconfig file (default: $KUBECONFIG, ~/.kube/config) with tokens, certificates or exec plugins."""

        def load(configuration: Any) -> None:
            from kubernetes import config  # takes most of a second to import, and the simulated cluster doesn't need it

            read: Callable[..., None] = config.load_kube_config
            read(
                config_file=path or None,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )

        return cls(load, path or "the default kubeconfig")

    @classmethod
    def in_cluster(cls) -> Credentials:
        """From the service account of the pod we run in; its token is read again as it rotates."""

        def load(configuration: Any) -> None:
            from kubernetes import config

            read: Callable[..., None] = config.load_incluster_config
            read(client_configuration=configuration)

        return cls(load, "the pod's service account")

    @classmethod
    def token(cls, host: str, token: str = "", ca_file: str = "") -> Credentials:
        """A plain address and bearer token; for tests and tools."""

        def load(configuration: Any) -> None:
            configuration.host = host
            configuration.ssl_ca_cert = ca_file or None
            if token:
                configuration.api_key["BearerToken"] = f"Bearer {token}"

        return cls(load, host)

    @classmethod
    def default(cls, kubeconfig: str = "") -> Credentials:
        """The given file; else in a pod its service account; else the default kubeconfig (as kubectl does it)."""
        import os

        if kubeconfig or os.environ.get("KUBECONFIG"):
            return cls.kubeconfig(kubeconfig)
        return cls.in_cluster() if os.environ.get("KUBERNETES_SERVICE_HOST") else cls.kubeconfig()

    def reload(self) -> Access:
        """Reads everything from the start: after a 401 a token file, certificate or plugin may say something new."""
        from kubernetes.client import Configuration

        configuration = Configuration()
        try:
            self._load(configuration)
        except Exception as error:  # the package raises its own, OSError, yaml errors, KeyError ...
            raise CredentialsError(f"{self._origin}: {type(error).__name__}: {error}") from error
        self._configuration = configuration
        return self.access()

    def access(self) -> Access:
        """The current access; refreshes what is about to expire through the package's own hook."""
        if self._configuration is None:
            return self.reload()
        try:
            return self._access(self._configuration)
        except Exception as error:
            raise CredentialsError(f"{self._origin}: {type(error).__name__}: {error}") from error

    def _access(self, configuration: Any) -> Access:
        setting = configuration.auth_settings().get("BearerToken")
        authorization = setting["value"].strip() if setting and setting.get("value") else None
        host = configuration.host.rstrip("/")
        bypass = bool(proxy_bypass(urlsplit(host).hostname or ""))
        return Access(
            host=host,
            authorization=authorization,
            tls=self._context(configuration) if host.startswith("https") else None,
            server_name=configuration.tls_server_name or None,
            proxy=None if bypass else configuration.proxy,
        )

    def _context(self, configuration: Any) -> ssl.SSLContext:
        """A TLS context, made anew only when the files have changed (connections are pooled by it)."""
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        key = (configuration.verify_ssl, *(_content(name) for name in files))
        if self._tls is None or self._tls[0] != key:
            context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
            if not configuration.verify_ssl:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
            self._tls = (key, context)
        return self._tls[1]


def _content(name: str | None) -> int:
    """A hash of the file's content, so that no key material is kept here."""
    return hash(Path(name).read_bytes()) if name else 0
