"""Tokens of a provider over HTTP: its keys are discovered, kept and rotated; what it has not signed proves nothing."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from api.auth.oidc import BETWEEN, KEYS_KEPT, KEYS_OUTLIVE, OidcSettings, OidcVerifier
from queue_manager.store.store import Store
from tests.api.callers import bearer, document, server, settle

AUDIENCE = "queue-manager"


class Provider:
    """An OpenID Connect provider on loopback."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.requests: list[str] = []
        self.answers = True
        self.named = ""
        self.strange: list[dict[str, Any]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests.append(self.path)
                body = json.dumps(provider.document(self.path)).encode()
                self.send_response(200 if provider.answers else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def document(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.named or self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        return {"keys": [*self.strange, *(self.jwk(kid) for kid in self.keys)]}

    def jwk(self, kid: str) -> dict[str, Any]:
        key = self.keys[kid]
        if isinstance(key, bytes):
            return {"kty": "oct", "kid": kid, "k": base64.urlsafe_b64encode(key).rstrip(b"=").decode()}
        algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}

    def rotate(self, kid: str) -> None:
        """Signs by a new key from now on, and publishes that alone."""
        self.keys = {kid: rsa.generate_private_key(public_exponent=65537, key_size=2048)}

    def token(self, kid: str = "", key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token; claims of value None are left out."""
        now = int(time.time())
        whole = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "exp": now + 600, "iat": now, **claims}
        kid = kid or next(iter(self.keys))
        payload = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(payload, self.keys[kid] if key is None else key, algorithm, {"kid": kid})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def started() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def provider(started: Provider) -> Provider:
    started.requests.clear()
    started.answers, started.named, started.strange = True, "", []
    started.rotate("first")
    return started


class Asked:
    """A verifier whose clock stands still, asked from a test."""

    def __init__(self, provider: Provider, **settings: Any) -> None:
        self.now = 1000.0
        self.verifier = OidcVerifier(OidcSettings(provider.issuer, AUDIENCE, **settings), lambda: self.now)

    async def name(self, token: str) -> str:
        """Who a token is of, or why it proves nothing."""
        try:
            return (await self.verifier.verify(token)).name
        except Exception as error:
            return f"{type(error).__name__}: {error}"


@pytest.fixture
async def asked(provider: Provider) -> Any:
    asked = Asked(provider)
    yield asked
    await asked.verifier.close()


async def test_keys_are_read_once(asked: Asked, provider: Provider):
    for _ in range(3):
        assert await asked.name(provider.token()) == "ada"
    assert provider.requests == ["/.well-known/openid-configuration", "/keys"]


async def test_a_rotated_key_is_found_and_the_old_one_counts_no_more(asked: Asked, provider: Provider):
    old = provider.token()
    assert await asked.name(old) == "ada"
    provider.rotate("second")
    asked.now += BETWEEN
    assert await asked.name(provider.token()) == "ada"
    assert "does not publish" in await asked.name(old)


async def test_a_key_that_can_t_be_used_is_passed_over(asked: Asked, provider: Provider):
    provider.strange = [{"kty": "EC", "kid": "new", "crv": "P-999", "x": "AA", "y": "AA", "use": "sig"}]
    assert await asked.name(provider.token()) == "ada"


async def test_unknown_keys_make_nobody_ask_all_the_time(asked: Asked, provider: Provider):
    assert await asked.name(provider.token()) == "ada"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for number in range(20):
        forged = jwt.encode({"iss": provider.issuer}, other, "RS256", {"kid": f"forged-{number}"})
        assert "does not publish" in await asked.name(forged)
    assert provider.requests.count("/keys") == 1
    asked.now += BETWEEN
    await asked.name(jwt.encode({"iss": provider.issuer}, other, "RS256", {"kid": "forged"}))
    assert provider.requests.count("/keys") == 2


async def test_while_the_provider_is_away_its_keys_serve_for_a_day(asked: Asked, provider: Provider):
    assert await asked.name(provider.token()) == "ada"
    provider.answers = False
    asked.now += KEYS_KEPT + 1
    assert await asked.name(provider.token()) == "ada"
    asked.now += KEYS_OUTLIVE
    assert "UnavailableError" in await asked.name(provider.token())


async def test_a_provider_of_another_name_is_not_believed(asked: Asked, provider: Provider):
    provider.named = "https://else.example"
    assert "UnavailableError" in await asked.name(provider.token())


async def test_clocks_may_differ_by_a_minute(asked: Asked, provider: Provider):
    now = int(time.time())
    assert await asked.name(provider.token(exp=now - 30)) == "ada"
    assert await asked.name(provider.token(nbf=now + 30, iat=now + 30)) == "ada"
    assert "expired" in await asked.name(provider.token(exp=now - 120))
    assert "RefusedError" in await asked.name(provider.token(nbf=now + 120))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://else.example"},
        {"exp": None},
        {"exp": "soon"},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "system:admin"},
        {"sub": "token:admin"},
        {"sub": "local"},
        {"groups": ["system:masters"]},
        {"groups": [1]},
    ],
)
async def test_claims_that_do_not_fit_are_refused(asked: Asked, provider: Provider, claims: dict[str, Any]):
    assert "RefusedError" in await asked.name(provider.token(**claims))


async def test_what_is_not_signed_by_the_provider_is_refused(asked: Asked, provider: Provider):
    key = provider.keys["first"].public_key()
    public = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "eve", "exp": int(time.time()) + 600}
    forged = [
        jwt.encode(claims, None, "none", {"kid": "first"}),
        shared(claims, public),
        jwt.encode(claims, rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", {"kid": "first"}),
        jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "first"}),
    ]
    for token in forged:
        assert "RefusedError" in await asked.name(token)
    head, body, signature = provider.token().split(".")
    other = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "eve"}).encode()).rstrip(b"=").decode()
    assert "RefusedError" in await asked.name(f"{head}.{other}.{signature}")
    assert "RefusedError" in await asked.name(f"{head}.{body}.")


def shared(claims: dict[str, Any], secret: bytes) -> str:
    """Signed by a shared secret, which for a careless reader is the public key; the library refuses to make that."""
    head = {"alg": "HS256", "typ": "JWT", "kid": "first"}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (head, claims)]
    signature = base64.urlsafe_b64encode(hmac.digest(secret, b".".join(parts), "sha256")).rstrip(b"=")
    return b".".join([*parts, signature]).decode()


async def test_a_published_secret_is_no_key(asked: Asked, provider: Provider):
    secret = b"x" * 32
    provider.keys = {"shared": secret, **provider.keys}
    token = provider.token("shared", secret, "HS256")
    assert "does not publish" in await asked.name(token)


async def test_keys_of_elliptic_curves_count(asked: Asked, provider: Provider):
    provider.keys = {"curve": ec.generate_private_key(ec.SECP256R1())}
    assert await asked.name(provider.token("curve", algorithm="ES256")) == "ada"


def test_users_and_groups_have_the_roles_of_bindings(store: Store, provider: Provider):
    def bound(name: str, kind: str, subject: str, role: str) -> dict[str, Any]:
        subjects = [{"kind": kind, "name": subject}]
        return document("RoleBinding", name, {"role": role, "subjects": subjects, "node": "research/nlp"})

    settle(
        store,
        bound("a", "User", "oidc:ada@example.org", "viewer"),
        bound("b", "Group", "oidc:ops", "operator"),
        bound("c", "Token", "oidc:ada@example.org", "platform-admin"),
    )
    settings = OidcSettings(provider.issuer, AUDIENCE, "email", username_prefix="oidc:", groups_prefix="oidc:")
    verifier = OidcVerifier(settings)
    with server(store, verifiers=[verifier]) as client:
        hold = {"json": {"reason": "x"}}
        path = "/api/v1/workloads/team-bert/blocked/hold"
        ada = provider.token(email="ada@example.org")
        assert client.get("/api/v1/tree", headers=bearer(ada)).status_code == 200
        assert client.post(path, headers=bearer(ada), **hold).status_code == 403
        ops = provider.token(email="grace@example.org", groups=["ops"])
        assert client.post(path, headers=bearer(ops), **hold).status_code == 202
        assert store.audit_entries(1)[0].who == "oidc:grace@example.org"
        assert store.audit_entries(1)[0].source == "oidc"
        nobody = provider.token(email="eve@example.org")
        assert client.get("/api/v1/tree", headers=bearer(nobody)).status_code == 403
        unverified = provider.token(email="ada@example.org", email_verified=False)
        assert client.get("/api/v1/tree", headers=bearer(unverified)).status_code == 401
        provider.answers = False
        provider.rotate("third")
        verifier._read_at = float("-inf")
        assert client.get("/api/v1/tree", headers=bearer(provider.token(email="x"))).status_code == 503


@pytest.mark.parametrize(("issuer", "audience"), [("http://idp.example", "x"), ("nonsense", "x"), ("https://idp", "")])
def test_settings_that_can_t_be_right_are_told(issuer: str, audience: str):
    assert OidcSettings(issuer, audience).problem()
