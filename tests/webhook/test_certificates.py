"""Own authority and serving certificate: what they hold, when they are renewed, and that replicas agree."""

import asyncio
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from queue_manager.webhook.certificate_stores import FolderStore, SecretStore
from queue_manager.webhook.certificates import (
    AUTHORITY_LIFETIME,
    SERVING_LIFETIME,
    Conflict,
    ensure_certificates,
    renew,
    renewal_time,
    service_names,
)
from tests.webhook.fakes import FakeCluster

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NAMES = service_names("queue-manager-webhook", "queue-manager")


def accepted(certificates, now, bundle=None, name=NAMES[0]):
    """Whether a client that trusts the bundle accepts the serving certificate at that time."""
    roots = Store(x509.load_pem_x509_certificates(bundle or certificates.bundle))
    verifier = PolicyBuilder().store(roots).time(now).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificates.serving), [])
    except x509.verification.VerificationError:
        return False
    return True


def test_fresh_certificates_are_accepted_for_each_name():
    made = renew(None, NOW, NAMES)
    assert all(accepted(made, NOW, name=name) for name in NAMES if name != "127.0.0.1")
    assert not accepted(made, NOW, name="somebody.else.svc")


def test_certificate_says_what_it_is_for():
    made = renew(None, NOW, NAMES)
    authority, serving = (x509.load_pem_x509_certificate(pem) for pem in (made.authority, made.serving))
    of = lambda certificate, extension: certificate.extensions.get_extension_for_class(extension).value  # noqa: E731
    assert of(authority, x509.BasicConstraints).ca
    assert of(authority, x509.KeyUsage).key_cert_sign
    assert not of(serving, x509.BasicConstraints).ca
    assert list(of(serving, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.SERVER_AUTH]
    identifier = of(authority, x509.SubjectKeyIdentifier).key_identifier
    assert of(serving, x509.AuthorityKeyIdentifier).key_identifier == identifier
    assert len(of(serving, x509.SubjectAlternativeName)) == len(NAMES)


def test_nothing_changes_before_two_thirds_of_the_life():
    made = renew(None, NOW, NAMES)
    due = renewal_time(made.serving)
    assert NOW + SERVING_LIFETIME * 0.66 < due < NOW + SERVING_LIFETIME * 0.67
    assert renew(made, due - timedelta(seconds=1), NAMES) == made
    again = renew(made, due, NAMES)
    assert again.serving != made.serving
    assert again.authority == made.authority
    assert accepted(again, due)


def test_new_authority_keeps_the_old_one_in_the_bundle_until_it_expires():
    made = renew(None, NOW, NAMES)
    due = renewal_time(made.authority)
    current = renew(made, due - timedelta(days=1), NAMES)  # what a replica may still serve for a while
    rotated = renew(current, due, NAMES)
    assert rotated.authority != made.authority
    assert accepted(current, due, rotated.bundle)
    assert accepted(rotated, due, rotated.bundle)
    assert not accepted(rotated, due, made.bundle)
    end = NOW + AUTHORITY_LIFETIME
    assert renew(rotated, end - timedelta(days=30), NAMES).old_authority == made.authority
    assert renew(rotated, end, NAMES).old_authority == b""


def test_serving_certificate_does_not_outlive_its_authority():
    made = renew(None, NOW, NAMES)
    late = renewal_time(made.authority) - timedelta(seconds=1)
    again = renew(made, late, NAMES)
    ends = [x509.load_pem_x509_certificate(pem).not_valid_after_utc for pem in (again.serving, again.authority)]
    assert ends[0] <= ends[1]


@pytest.mark.parametrize("part", ["authority", "authority_key", "serving", "serving_key"])
@pytest.mark.parametrize("content", [b"", b"garbage", "other"])
def test_damaged_part_is_made_anew(part, content):
    made = renew(None, NOW, NAMES)
    damage = getattr(renew(None, NOW, NAMES), part) if content == "other" else content
    again = renew(replace(made, **{part: damage}), NOW, NAMES)
    assert accepted(again, NOW)


def test_old_authority_that_cannot_be_read_leaves_the_bundle():
    made = renew(None, NOW, NAMES)
    assert renew(replace(made, old_authority=b"garbage"), NOW, NAMES) == made


def test_a_new_name_gets_a_new_certificate_and_a_missing_one_does_not():
    made = renew(None, NOW, NAMES)
    assert renew(made, NOW, NAMES[:2]) == made
    assert accepted(renew(made, NOW, [*NAMES, "webhook.example"]), NOW, name="webhook.example")


def test_certificate_from_the_future_is_replaced():
    made = renew(None, NOW + timedelta(days=400), NAMES)
    assert accepted(renew(made, NOW, NAMES), NOW)


async def test_folder_is_private_and_survives(tmp_path):
    store = FolderStore(tmp_path / "certificates")
    made = await ensure_certificates(store, NOW, NAMES)
    assert await ensure_certificates(FolderStore(tmp_path / "certificates"), NOW, NAMES) == made
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certificates").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "certificates").stat().st_mode) == 0o700


async def test_folder_with_a_lost_file_is_filled_again(tmp_path):
    store = FolderStore(tmp_path)
    await ensure_certificates(store, NOW, NAMES)
    (tmp_path / "tls.key").unlink()
    assert accepted(await ensure_certificates(store, NOW, NAMES), NOW)


async def test_folder_written_by_another_process_meanwhile(tmp_path):
    store = FolderStore(tmp_path)
    _, version = await store.read()
    made = await ensure_certificates(FolderStore(tmp_path), NOW, NAMES)
    with pytest.raises(Conflict):
        await store.write(made, version)


class SlowCluster(FakeCluster):
    """Lets others in between reading and writing."""

    async def get(self, *arguments):
        try:
            return await super().get(*arguments)
        finally:
            await asyncio.sleep(0)


@pytest.mark.parametrize("prepared", [False, True], ids=["no Secret", "empty Secret of the manifest"])
async def test_replicas_that_start_together_serve_from_one_authority(prepared):
    cluster = SlowCluster()
    store = SecretStore(cluster.port, "queue-manager")
    if prepared:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "queue-manager-webhook-certificate"}}
        cluster.objects["secrets", "queue-manager", "queue-manager-webhook-certificate"] = secret
        secret["metadata"]["resourceVersion"] = "0"
    found = await asyncio.gather(*(ensure_certificates(store, NOW, NAMES) for _ in range(4)))
    assert len(set(found)) == 1
    assert len(cluster.writes) == 1
    assert accepted(found[0], NOW)


async def test_renewal_in_the_secret_keeps_what_others_put_there():
    cluster = FakeCluster()
    store = SecretStore(cluster.port, "queue-manager")
    made = await ensure_certificates(store, NOW, NAMES)
    stored = cluster.objects["secrets", "queue-manager", "queue-manager-webhook-certificate"]
    stored["metadata"]["labels"] = {"team": "platform"}
    again = await ensure_certificates(store, renewal_time(made.serving), NAMES)
    assert again.serving != made.serving
    stored = cluster.objects["secrets", "queue-manager", "queue-manager-webhook-certificate"]
    assert stored["metadata"]["labels"] == {"team": "platform"}
    assert set(stored["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key", "ca-old.crt"}
