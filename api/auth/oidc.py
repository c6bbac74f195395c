"""Bearer tokens of an OpenID Connect provider. Its keys are found by discovery, kept, and asked for anew when a token
names one that is not known, though not more often than a bound allows."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import structlog
from jwt import PyJWK

from ..security import is_loopback
from .authentication import RefusedError, UnavailableError
from .identity import EVERYBODY, Identity, Source, is_ours

log = structlog.get_logger(__name__)

ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""What a key of a type may have signed with; never a shared secret, never nothing."""
LEEWAY = 60
"""Seconds that clocks may differ."""
KEYS_KEPT = 300.0
KEYS_OUTLIVE = 86_400.0
"""Seconds after which keys are asked for anew, and for which they serve while the provider does not answer."""
BETWEEN = 10.0
"""Seconds between two askings at least, whatever tokens name."""
TIMEOUT = aiohttp.ClientTimeout(total=5)
MAX_ANSWER = 1 << 20
KUBERNETES = "system:"
"""What Kubernetes' own users and groups begin with."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`issuer` and `audience` (the client's id) as the provider writes them into tokens; prefixes are put before names
    and groups. `ca_file`: certificates that the provider's is checked by, else the system's."""

    issuer: str
    audience: str
    username_claim: str = "sub"
    groups_claim: str = "groups"
    username_prefix: str = ""
    groups_prefix: str = ""
    ca_file: str = ""

    def problem(self) -> str:
        """What is wrong with them, or ""."""
        parts = urlsplit(self.issuer)
        host = parts.hostname or ""
        if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
            return f"the OIDC issuer {self.issuer!r} must be an https URL"
        return "" if self.audience else "an OIDC audience is needed: the client id that tokens are made for"


class OidcVerifier:
    """Tokens of one provider."""

    def __init__(self, settings: OidcSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._monotonic = monotonic
        self._keys: dict[str, PyJWK] = {}
        self._read_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    def takes(self, credential: str) -> bool:
        """Whether it says to be of this provider; whether that is so is found out afterwards."""
        try:
            unproven = jwt.decode(credential, options={"verify_signature": False})
        except jwt.PyJWTError:
            return False
        return unproven.get("iss") == self.settings.issuer

    async def verify(self, credential: str, address: str = "") -> Identity:
        """Whose it is."""
        try:
            header = jwt.get_unverified_header(credential)
            key = await self._key(header.get("kid"))
            claims = jwt.decode(
                credential,
                key.key,
                algorithms=_algorithms(key),
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidAlgorithmError:
            raise RefusedError("it is not signed as this provider signs") from None
        except jwt.PyJWTError as error:
            raise RefusedError(str(error)[:200]) from None
        return self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        settings = self.settings
        name, groups = claims.get(settings.username_claim), claims.get(settings.groups_claim, [])
        if not isinstance(name, str) or not name or len(name) > 500 or not name.isprintable():
            raise RefusedError(f"claim {settings.username_claim!r} is no name")
        if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
            raise RefusedError("its email address is not verified")
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise RefusedError(f"claim {settings.groups_claim!r} is no list of groups")
        name, known = settings.username_prefix + name, {settings.groups_prefix + group for group in groups}
        if any(is_ours(each) or each.startswith(KUBERNETES) for each in (name, *known)):
            raise RefusedError("its name or a group of it is reserved; set a prefix for this provider's")
        return Identity(name, frozenset({*known, EVERYBODY}), Source.OIDC)

    async def _key(self, kid: object) -> PyJWK:
        now = self._monotonic()
        known = kid in self._keys if kid is not None else len(self._keys) == 1
        if not known or now - self._read_at > KEYS_KEPT:
            await self._refresh()
        if self._monotonic() - self._read_at > KEYS_OUTLIVE:
            raise UnavailableError("the identity provider's keys can't be read")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if not isinstance(kid, str) or kid not in self._keys:
            raise RefusedError("it is signed by a key that the provider does not publish")
        return self._keys[kid]

    async def _refresh(self) -> None:
        asked_at = self._monotonic()
        async with self._lock:
            now = self._monotonic()
            if self._read_at >= asked_at or now - self._tried_at < BETWEEN:
                return
            self._tried_at = now
            try:
                self._keys = await self._read_keys()
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
                log.warning("keys of the OIDC provider not read", issuer=self.settings.issuer, why=str(error)[:200])
                return
            self._read_at = now

    async def _read_keys(self) -> dict[str, PyJWK]:
        issuer = self.settings.issuer
        found = await self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found["issuer"] != issuer:
            raise ValueError(f"the provider calls itself {found['issuer']!r}")
        uri = found["jwks_uri"]
        if urlsplit(issuer).scheme == "https" and urlsplit(uri).scheme != "https":
            raise ValueError("its keys are not served by https")
        keys: dict[str, PyJWK] = {}
        for item in (await self._get(uri))["keys"]:
            if item.get("kty") in ALGORITHMS and item.get("use", "sig") == "sig":
                try:
                    keys[str(item.get("kid", ""))] = PyJWK.from_dict(item)
                except jwt.PyJWTError as error:
                    # RFC 7517, 5: a key that can't be used is passed over, and the others count.
                    log.warning("key of the OIDC provider not usable", issuer=issuer, why=str(error)[:200])
        return keys

    async def _get(self, url: str) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True, connector=self._connector())
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"{url} answered {answer.status}")
            body = bytearray()
            async for chunk in answer.content.iter_chunked(65536):
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise ValueError(f"{url} is too large")
        return json.loads(body)

    def _connector(self) -> aiohttp.TCPConnector:
        file = self.settings.ca_file
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=file)) if file else aiohttp.TCPConnector()

    async def close(self) -> None:
        """Ends the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _algorithms(key: PyJWK) -> list[str]:
    kind = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}.get(key.algorithm_name[:2], "")
    return list(ALGORITHMS.get(kind, ()))
