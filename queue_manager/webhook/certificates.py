"""Our own certificate authority and serving certificate: made, renewed and rotated by the product itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3 * 365)
SERVING_LIFETIME = timedelta(days=90)
BACKDATED = timedelta(minutes=5)
"""Clocks of API servers may be behind ours."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Everything as PEM. `old_authority` is the one before, kept while its certificates may be served."""

    authority: bytes
    authority_key: bytes
    serving: bytes
    serving_key: bytes
    old_authority: bytes = b""

    @property
    def bundle(self) -> bytes:
        """What clients trust (`caBundle`): the authority, and the old one beside it."""
        return self.authority + self.old_authority


class Conflict(Exception):
    """Somebody else has written the store meanwhile."""


class CertificateStore(Protocol):
    """Where certificates are kept; several processes may share one."""

    async def read(self) -> tuple[Certificates | None, str]:
        """What is stored (None when nothing usable is) and its version, "" when there is nothing at all."""
        ...

    async def write(self, certificates: Certificates, version: str) -> None:
        """Stores them in place of `version`. Raises Conflict when that is no longer what is stored."""
        ...


async def ensure_certificates(store: CertificateStore, now: datetime, names: Sequence[str]) -> Certificates:
    """The certificates to serve for `names` (DNS names and IP addresses), made or renewed when it is time for it.

    A certificate is renewed at two thirds of its life. With a new authority the old one stays in the bundle until it
    expires. Callers publish the bundle before they serve the certificate. Where several processes renew at once, one
    wins and the others take what it wrote.
    """
    for _ in range(5):
        stored, version = await store.read()
        wanted = renew(stored, now, names)
        if wanted == stored:
            return wanted
        try:
            await store.write(wanted, version)
        except Conflict:
            continue
        return wanted
    raise Conflict("the certificates change all the time: do several installations share one Secret?")


def renew(stored: Certificates | None, now: datetime, names: Sequence[str]) -> Certificates:
    """The certificates that should be there at `now`; the same object content when nothing is due."""
    if stored is None or not _matches(stored.authority, stored.authority_key):
        return _fresh(now, names)
    if _due(stored.authority, now):
        fresh = _fresh(now, names)
        return fresh if _expired(stored.authority, now) else replace(fresh, old_authority=stored.authority)
    if stored.old_authority and _expired(stored.old_authority, now):
        stored = replace(stored, old_authority=b"")
    if _serves(stored, names) and not _due(stored.serving, now):
        return stored
    serving, key = _issue(stored.authority, stored.authority_key, now, names)
    return replace(stored, serving=serving, serving_key=key)


def renewal_time(certificate: bytes) -> datetime:
    """When two thirds of a certificate's life are over."""
    loaded = x509.load_pem_x509_certificate(certificate)
    begin, end = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _due(certificate: bytes, now: datetime) -> bool:
    # A certificate from the future was made by a clock that was wrong: nobody would accept it.
    return now >= renewal_time(certificate) or x509.load_pem_x509_certificate(certificate).not_valid_before_utc > now


def _expired(certificate: bytes, now: datetime) -> bool:
    """Whether it is of no use any more; what can't be read is not either."""
    try:
        return now >= x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return True


def _matches(certificate: bytes, key: bytes) -> bool:
    """Whether both can be read and belong together."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        return public == _load_key(key).public_key()
    except (ValueError, TypeError):
        return False


def _serves(stored: Certificates, names: Sequence[str]) -> bool:
    """Whether the serving certificate is whole, comes from the authority and names everything."""
    if not _matches(stored.serving, stored.serving_key):
        return False
    serving = x509.load_pem_x509_certificate(stored.serving)
    try:
        serving.verify_directly_issued_by(x509.load_pem_x509_certificate(stored.authority))
        covered = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return set(_alternatives(names)) <= set(covered)


def _fresh(now: datetime, names: Sequence[str]) -> Certificates:
    """A new authority with a first certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The time in the name tells old and new apart: verifiers look an issuer up by its name first.
    name = _name(f"Queue Manager webhook CA {now:%Y-%m-%dT%H:%M:%S.%f}Z")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority, authority_key = certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)
    serving, serving_key = _issue(authority, authority_key, now, names)
    return Certificates(authority, authority_key, serving, serving_key)


def _issue(authority: bytes, authority_key: bytes, now: datetime, names: Sequence[str]) -> tuple[bytes, bytes]:
    """A serving certificate and its key; it does not outlive the authority."""
    issuer = x509.load_pem_x509_certificate(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    end = min(now + SERVING_LIFETIME, issuer.not_valid_after_utc)
    certificate = (
        _builder(_name("Queue Manager webhook"), issuer.subject, key.public_key(), now, end)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier), critical=False
        )
        .sign(_load_key(authority_key), hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is no elliptic curve key")
    return key


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Every name by which an API server may call the service, and the local ones."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", "localhost", "127.0.0.1")
