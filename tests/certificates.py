"""A folder of certificates: what servers and clients show each other, good and bad.

Each is two files, `NAME.pem` and `NAME.key`.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.tls import TlsFiles

AUTHORITY = "ca"
HERE = ("127.0.0.1", "localhost")
DAY = timedelta(days=1)


def make_certificates(folder: Path) -> None:
    """Signed by `ca`: server, other (for another host), expired, client. `stranger` is signed by itself."""
    make_authority(folder)
    make_certificate(folder, "server", *HERE)
    make_certificate(folder, "other", "nats.example")
    make_certificate(folder, "client", "flotilla")
    make_certificate(folder, "expired", *HERE, ends=-DAY)
    _write(folder, "stranger", _unsigned("stranger", HERE), None)


def make_authority(folder: Path) -> None:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    unsigned = _unsigned("test authority").add_extension(usage, critical=True).add_extension(constraints, critical=True)
    _write(folder, AUTHORITY, unsigned, None)


def make_certificate(folder: Path, name: str, *hosts: str, ends: timedelta = 2 * DAY, names_keys: bool = True) -> None:
    """Signed by the authority of the folder. Older authorities do not name the keys in what they sign."""
    _write(folder, name, _unsigned(name, hosts, ends), folder / f"{AUTHORITY}.pem", names_keys=names_keys)


def files(folder: Path, ca: str = AUTHORITY, own: str = "") -> TlsFiles:
    certificate, key = (str(folder / f"{own}.pem"), str(folder / f"{own}.key")) if own else (None, None)
    return TlsFiles(str(folder / f"{ca}.pem"), certificate, key)


def _unsigned(name: str, hosts: tuple[str, ...] = (), ends: timedelta = 2 * DAY) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(named).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - 3 * DAY).not_valid_after(now + ends)
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)


def _write(
    folder: Path, name: str, unsigned: x509.CertificateBuilder, authority: Path | None, *, names_keys: bool = True
) -> None:
    """Without an authority it is signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, signer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key
    if name == AUTHORITY:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.read_bytes()).subject
        loaded = serialization.load_pem_private_key(authority.with_suffix(".key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    unsigned = unsigned.issuer_name(issuer).public_key(key.public_key())
    if names_keys:
        unsigned = unsigned.add_extension(subject, critical=False).add_extension(identifier, critical=False)
    certificate = unsigned.sign(signer, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(key.private_bytes(*pem))
