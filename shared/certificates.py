"""Certificates of our own making: an authority, servers that it signs, and servers that sign themselves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.errors import UserError

EARLIER = timedelta(hours=1)
"""How long before its creation a certificate becomes valid, because clocks differ."""


@dataclass(frozen=True, slots=True)
class Pair:
    """PEM. `key` is not encrypted."""

    certificate: str
    key: str = field(repr=False)


class Authority:
    """Signs servers' certificates. `certificate` (PEM) is what their clients trust."""

    def __init__(self, certificate: x509.Certificate, key: CertificateIssuerPrivateKeyTypes) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime, lasts: timedelta) -> "Authority":
        """A new authority, whose key is in memory only."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = _builder(subject, subject, key.public_key(), key.public_key(), now, lasts)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> "Authority":
        """An existing authority. UserError if the files hold none."""
        try:
            made = cls(
                x509.load_pem_x509_certificate(certificate.read_bytes()),
                serialization.load_pem_private_key(key.read_bytes(), None),  # type: ignore[arg-type]
            )
        except OSError as cause:
            raise UserError(f"{cause.filename}: {cause.strerror}") from cause
        except (ValueError, TypeError) as cause:
            raise UserError(f"{certificate}, {key}: not an authority's certificate and its key, unencrypted") from cause
        if made._certificate.public_key() != made._key.public_key():
            raise UserError(f"{key}: not the key of {certificate}")
        return made

    @property
    def certificate(self) -> str:
        return _pem(self._certificate)

    def sign(self, hosts: tuple[str, ...], now: datetime, lasts: timedelta) -> Pair:
        """For a server that is reached by these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _server(hosts, self._certificate.subject, key.public_key(), self._key.public_key(), now, lasts)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def self_signed(hosts: tuple[str, ...], now: datetime, lasts: timedelta) -> Pair:
    """For a server whose clients do not verify it."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _server(hosts, _name(hosts[0]), key.public_key(), key.public_key(), now, lasts)
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def _server(
    hosts: tuple[str, ...],
    issuer: x509.Name,
    ours: ec.EllipticCurvePublicKey,
    signers: object,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    builder = _builder(_name(hosts[0]), issuer, ours, signers, now, lasts)
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    ours: ec.EllipticCurvePublicKey,
    signers: object,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(ours)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - EARLIER).not_valid_after(now + lasts)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signers)  # type: ignore[arg-type]
    builder = builder.add_extension(identifier, critical=False)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(ours), critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()
