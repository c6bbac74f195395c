"""Which server a command talks to, and as whom."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from queue_manager.cli import profiles
from queue_manager.cli.client import DEFAULT_SERVER, Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.profiles import Profile

IN_CLUSTER = "queue-manager"
"""Namespace that deploy/install.yaml installs into."""


@dataclass(frozen=True, slots=True)
class Target:
    """The options as typed; "" is not given."""

    server: str = ""
    token: str = ""
    profile: str = ""
    context: str = ""
    kubeconfig: str = ""


class Plugin:
    """Whether we run as `kubectl qm`: then the cluster of kubectl is asked where nothing else is named."""

    active = False


def chosen(target: Target, environment: Mapping[str, str]) -> Profile:
    """What is typed counts before the environment, and that before the current profile. A token goes only to the
    server that it is for."""
    token = target.token or environment.get("QM_TOKEN", "")
    if target.server:
        return Profile(target.server, token=token or token_for(target.server))
    if target.profile:
        return _of_profile(target.profile, target.token, environment)
    if target.context or target.kubeconfig:
        return Profile(context=target.context, kubeconfig=target.kubeconfig, token=token)
    if server := environment.get("QM_SERVER", ""):
        return Profile(server, token=token or token_for(server))
    if name := environment.get("QM_PROFILE", ""):
        return _of_profile(name, target.token, environment)
    if Plugin.active:
        return Profile(token=token)
    known = profiles.load()
    if known.current:
        return _of_profile(known.current, target.token, environment)
    return Profile(DEFAULT_SERVER, token=token)


def _of_profile(name: str, token: str, environment: Mapping[str, str]) -> Profile:
    profile = profiles.load().get(name)
    token = token or profile.token or environment.get("QM_TOKEN", "")
    return Profile(**{**{each: getattr(profile, each) for each in Profile.__slots__}, "token": token})


def token_for(server: str) -> str:
    """The token of the profile that is for this very server."""
    same = [each for each in profiles.load().named.values() if each.server.rstrip("/") == server.rstrip("/")]
    return same[0].token if len(same) == 1 else ""


def connect(target: Target, *, timeout: float | None = None) -> Client:
    """The client of what is chosen."""
    return connect_to(chosen(target, os.environ), timeout=timeout)


def connect_to(profile: Profile, *, timeout: float | None = None) -> Client:
    """The client of a profile."""
    more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if profile.ca_file:
        more["tls"] = _tls(profile.ca_file)
    if profile.server:
        return Client(profile.server, profile.token, **more)
    from queue_manager.cli.tunnel import open_tunnel

    tunnel = open_tunnel(profile.context, profile.kubeconfig, profile.api_namespace or IN_CLUSTER)
    return Client(tunnel.server, profile.token or tunnel.token(), **more)


def _tls(file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        raise CommandError(f"can't read the certificates of {file}: {error.strerror or error}") from None


def default_namespace(target: Target) -> str:
    """Namespace of a job that is named without one: the profile's, or the one of kubectl's context; "" for none."""
    profile = chosen(target, os.environ)
    if profile.namespace or profile.server:
        return profile.namespace
    from queue_manager.cli.tunnel import namespace_of

    return namespace_of(profile.context, profile.kubeconfig)


Connect = Callable[[], Client]
