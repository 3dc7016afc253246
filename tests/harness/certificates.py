"""Certificates for servers on loopback and their clients, from an authority that lives as long as the test.

Its rule: whatever is wrong with one is asked for by name.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from nats_scheduler.runtime.embedded import HOST


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority, and the file that makes others trust it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA(organization_name=name)
        self.file = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *, host: str = HOST, expired: bool = False) -> Pair:
        """Issue a certificate for a host, into files called `name`."""
        ends = datetime.now(UTC) - timedelta(days=1) if expired else None
        begins = datetime.now(UTC) - timedelta(days=2) if expired else None
        issued = self._authority.issue_cert(host, not_before=begins, not_after=ends)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.private_key_pem.write_to_path(str(pair.key))
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return pair


def tls_config(server: Pair, *, clients: Authority | None = None, first: bool = False) -> str:
    """Write the `tls` block of a server; with `clients`, it asks for a certificate of that authority."""
    lines = [f'cert_file: "{server.cert}"', f'key_file: "{server.key}"']
    lines += [f'ca_file: "{clients.file}"', "verify: true"] if clients is not None else []
    lines += ["handshake_first: true"] if first else []
    return "tls { " + ", ".join(lines) + " }\n"
