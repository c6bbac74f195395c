"""The TLS context of the server; a new certificate takes effect without a restart."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from queue_manager.webhook.certificates import Certificates


class Tls:
    """Wraps one SSL context. Connections made after `load` get the new certificate, those there are keep theirs."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        # API servers keep no tickets: each new connection is a full handshake, whatever we send.
        self.context.num_tickets = 0
        self.context.options |= ssl.OP_NO_TICKET
        self._loaded: tuple[bytes, bytes] | None = None

    @property
    def loaded(self) -> bool:
        """Whether there is a certificate to serve with."""
        return self._loaded is not None

    def load(self, certificates: Certificates) -> bool:
        """Serves with this certificate from now on. Returns whether it is another one than before.

        Raises: ssl.SSLError when certificate and key don't belong together.
        """
        pair = (certificates.serving, certificates.serving_key)
        if pair == self._loaded:
            return False
        # OpenSSL's binding reads keys from files only; the folder is private and gone at once.
        with tempfile.TemporaryDirectory(prefix="queue-manager-tls-") as folder:
            path = Path(folder) / "serving.pem"
            path.touch(mode=0o600)
            path.write_bytes(certificates.serving_key + certificates.serving)
            self.context.load_cert_chain(path)
        self._loaded = pair
        return True
