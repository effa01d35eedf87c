"""TLS certificates for a SuperLink and keys for its SuperNodes: ``python examples/flower/keys.py FOLDER --help``.

=====================  =========================================================================
``ca.crt``             what every machine has to trust: it goes to the server and to all clients
``server.crt, .key``   the SuperLink's certificate, by ``ca.crt``, and its secret key
``client-0``           a SuperNode's secret key (ECDSA on P-384, as OpenSSH writes it)
``client-0.pub``       its public key, for ``flwr supernode register``
=====================  =========================================================================

The key of the certificate authority is thrown away: for another server, or after a year, make all of them anew.
"""

import argparse
import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

VALID = timedelta(days=365)


def make(folder: Path, clients: int, hosts: list[str]) -> None:
    """Make the folder, which must not be there, and the files in it; secrets are for their owner only."""
    folder.mkdir(mode=0o700, parents=True)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "federation")])
    root = certificate(issuer, authority.public_key(), issuer, authority, x509.BasicConstraints(True, 0))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    names = x509.SubjectAlternativeName([alternative(host) for host in hosts])
    write(folder / "ca.crt", root.public_bytes(Encoding.PEM))
    own = certificate(subject, server.public_key(), issuer, authority, names)
    write(folder / "server.crt", own.public_bytes(Encoding.PEM))
    write(folder / "server.key", server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for number in range(clients):
        key = ec.generate_private_key(ec.SECP384R1())
        write(folder / f"client-{number}", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        write(folder / f"client-{number}.pub", key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def certificate(subject, key, issuer, signer, extension) -> x509.Certificate:
    """For a year from now."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), now, now + VALID)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for added in (extension, x509.SubjectKeyIdentifier.from_public_key(key), identifier):
        builder = builder.add_extension(added, critical=isinstance(added, x509.BasicConstraints))
    return builder.sign(signer, hashes.SHA384())


def alternative(host: str) -> x509.GeneralName:
    """A host in a certificate: an address or a name."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="TLS certificates for a SuperLink and keys for its SuperNodes.")
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--clients", type=int, required=True, help="number of SuperNodes")
    text = "name or address under which machines reach the SuperLink; repeatable; localhost and 127.0.0.1 are added"
    parser.add_argument("--host", action="append", default=[], help=text)
    arguments = parser.parse_args()
    make(arguments.folder, arguments.clients, [*arguments.host, "localhost", "127.0.0.1"])
