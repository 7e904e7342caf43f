"""A certificate authority of one cluster, and what it signs: servers of this machine, and users."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


class Signed(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jestlab-tests")])
        self._own = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(_pem(self._own.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ("localhost",)) -> Signed:
        """Make a certificate of a server on 127.0.0.1, which is a user of that name and its groups, too."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternatives += [x509.DNSName(host) for host in hosts]
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            self._builder(subject, key)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(uses, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = name.replace(":", "-")
        made = Signed(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        made.certificate.write_bytes(_pem(certificate))
        _write_key(made.key, key)
        return made

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
        )


def account_key(folder: Path) -> Path:
    path = folder / "accounts.key"
    _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
