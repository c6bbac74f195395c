"""How the API is authenticated, from options and environment; the first admin's token."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

from api.auth.authentication import Authentication, Verifier
from api.auth.kubernetes import KubernetesVerifier
from api.auth.oidc import OidcSettings, OidcVerifier
from api.auth.token_verifier import TokenVerifier
from api.context import utc_now
from api.security import is_loopback, require_loopback
from api.shared import Shared
from queue_manager.cli import profiles
from queue_manager.cli.errors import CommandError
from queue_manager.cli.options import AuthMode, AuthOptions
from queue_manager.cluster.port import Cluster
from queue_manager.store.store import Store
from queue_manager.store.tokens import Maker, Scope, new_secret

NO_PREFIX = "-"
"""In place of a prefix: there is none, on purpose."""
FIRST = "admin"
PROFILE = "local"


def is_required(options: AuthOptions, host: str) -> bool:
    """Whether who asks has to prove who they are. CommandError where that may not be left open."""
    elsewhere = not is_loopback(host) or bool(options.hosts)
    if options.mode is AuthMode.OPTIONAL and elsewhere:
        if options.hosts:
            raise CommandError(
                "--allowed-host lets others than this machine in, which needs authentication", "use --auth required"
            )
        try:
            require_loopback(host)
        except ValueError as error:
            raise CommandError(str(error)) from None
    return options.mode is AuthMode.REQUIRED or elsewhere


def authentication_of(
    options: AuthOptions, host: str, store: Store, cluster: Cluster | None = None, shared: Shared | None = None
) -> Authentication:
    """API tokens always; OIDC and Kubernetes' tokens where they are set up, for which `cluster` is asked; without it
    this says only what will be. `shared` is of servers that have several processes."""
    required = is_required(options, host)
    verifiers: list[Verifier] = [TokenVerifier(store, utc_now)]
    ways = ["API tokens"]
    oidc = _oidc(options)
    if oidc is not None:
        verifiers.append(OidcVerifier(oidc))
        ways.append("OIDC")
    if options.kubernetes:
        ways.append("Kubernetes tokens")
        if cluster is not None:
            verifiers.append(KubernetesVerifier(cluster, options.kubernetes_audience, buckets=shared))
    hosts = frozenset(name.lower() for name in options.hosts)
    if required and not hosts and not is_loopback(host):
        hosts = frozenset({"*"})  # a page of another name carries no cookie of ours, and no token
    protected = required if options.protect_metrics is None else options.protect_metrics
    return Authentication(required, verifiers, hosts, not protected, ways)


def _oidc(options: AuthOptions) -> OidcSettings | None:
    if not options.oidc_issuer:
        if options.oidc_audience:
            raise CommandError("--oidc-audience without --oidc-issuer", "give both, or neither")
        return None
    read = os.environ.get
    settings = OidcSettings(
        options.oidc_issuer,
        options.oidc_audience,
        read("QM_OIDC_USERNAME_CLAIM") or "sub",
        read("QM_OIDC_GROUPS_CLAIM") or "groups",
        _prefix(options, "QM_OIDC_USERNAME_PREFIX"),
        _prefix(options, "QM_OIDC_GROUPS_PREFIX"),
        read("QM_OIDC_CA_FILE", ""),
    )
    if problem := settings.problem():
        raise CommandError(problem)
    return settings


def _prefix(options: AuthOptions, variable: str) -> str:
    """What is put before names of the provider. Where Kubernetes gives names, too, somebody has to say whether those
    mean the same people (docs/decisions/0014)."""
    given = os.environ.get(variable, "")
    if not given and options.kubernetes:
        raise CommandError(
            f"--oidc-issuer and --kubernetes-auth both name users and groups, and {variable} does not tell them apart",
            f"set {variable} to a prefix for the OIDC provider's, such as oidc: (bindings name them with it), or to "
            f"{NO_PREFIX} where one name means the same people in both",
        )
    return "" if given == NO_PREFIX else given


def words_on(authentication: Authentication) -> str:
    """What the log says of it at the start."""
    ways = ", ".join(authentication.ways)
    if authentication.required:
        return f"required ({ways})"
    return f"none needed, so on loopback only: whoever is on this machine is admin ({ways} count too)"


def first_token(store: Store, server: str, *, required: bool) -> None:
    """At the first start prints an admin's token, once, and puts it into the profile `local` of this user's commands,
    which they use without being told where a proof is required."""
    secret, now = new_secret(), datetime.now(UTC)
    maker = Maker("local", "loopback", reason="the first start")
    made = store.access.create_first_token(secret, FIRST, (Scope("platform-admin"),), maker, now)
    if made is not None:
        print(f"first admin token, shown this once: {secret}", flush=True)
    try:
        _keep(store, server, secret if made is not None else "", required)
    except CommandError as error:
        print(f"the profile of this user's commands is as it was: {error.message}", flush=True)


def _keep(store: Store, server: str, secret: str, required: bool) -> None:
    known = profiles.load()
    there = known.named.get(PROFILE)
    if secret:
        current = known.current or (PROFILE if required else "")
        profile = profiles.Profile(server=server, token=secret)
        profiles.save(profiles.Profiles(current, {**known.named, PROFILE: profile}))
        print(f"kept for commands on this machine: profile {PROFILE} in {profiles.path()}", flush=True)
    elif there is not None and there.server == server and there.token and store.access.find_token(there.token) is None:
        # It is of another database that was served here, and would be refused.
        profiles.save(profiles.Profiles(known.current, {**known.named, PROFILE: replace(there, token="")}))
