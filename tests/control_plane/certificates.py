"""Throw-away certificates of a test control plane: one authority, server and client certificates signed by it."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LIFETIME = datetime.timedelta(days=3650)


def new_key() -> ec.EllipticCurvePrivateKey:
    """An elliptic curve key: made in under a millisecond, where RSA takes a tenth of a second."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """The private key as PEM in the traditional form, which every Kubernetes component reads."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def public_pem(key: PrivateKey) -> bytes:
    """The public half of a key as PEM."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes ``<name>.crt`` and ``<name>.key`` (readable by the owner only); returns both paths."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


class Authority:
    """A certificate authority that exists only in this process (and in the files it is written to)."""

    def __init__(self, name: str, *, organization: str | None = None, use_rsa: bool = False) -> None:
        """Makes the authority; ``use_rsa`` for programs that parse the authority's key as RSA only."""
        self._use_rsa = use_rsa
        self._key: PrivateKey = self._make_key()
        self._name = _name(name, [organization] if organization else [])
        builder = _builder(self._name, self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=True,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        # The authority's name as a host name too: the certificate rotation of Trainer asks for it.
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pair = Pair(self._certificate.public_bytes(serialization.Encoding.PEM), key_pem(self._key))

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM: what a client must trust."""
        return self.pair.certificate

    def server(self, *hosts: str) -> Pair:
        """A server certificate for host names and addresses."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self._issue(_name(hosts[0], []), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """A client certificate that Kubernetes reads as this user in these groups."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(self, subject: x509.Name, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]) -> Pair:
        key = self._make_key()
        builder = _builder(subject, self._name, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))

    def _make_key(self) -> PrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048) if self._use_rsa else new_key()


def valid_server_pair(authority: bytes, pair: Pair, host: str, remaining: datetime.timedelta) -> bool:
    """Whether a stored pair still serves a host: signed by the authority, right name, key and time left."""
    try:
        issuer = x509.load_pem_x509_certificate(authority)
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        certificate.verify_directly_issued_by(issuer)
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # any damage to the stored files means that they must be made anew
        return False
    ends = min(issuer.not_valid_after_utc, certificate.not_valid_after_utc)
    return (
        host in hosts.get_values_for_type(x509.DNSName)
        and isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey))
        and public_pem(key)
        == certificate.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        and ends - datetime.datetime.now(datetime.UTC) > remaining
    )


def _name(common: str, organizations: Iterable[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, item) for item in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )
