"""A folder of certificates: what servers and clients show each other, good and bad."""

from pathlib import Path

from shared.tls import TlsFiles
from tests.extenders.server import make_authority, make_certificate, openssl

HERE = "IP:127.0.0.1,DNS:localhost"


async def make_certificates(folder: Path) -> None:
    """Signed by `ca`: server, other (for another host), expired, client. `stranger` is signed by itself."""
    await make_authority(folder)
    await make_certificate(folder, "server", HERE)
    await make_certificate(folder, "other", "DNS:nats.example")
    await make_certificate(folder, "client", "DNS:flotilla")
    await _sign_again(folder, "expired", "server", days="-1")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "stranger.key")
    named = ("-subj", "/CN=stranger", "-addext", f"subjectAltName={HERE}")
    await openssl(folder, "req", "-x509", *key, "-out", "stranger.pem", "-days", "2", *named)


async def _sign_again(folder: Path, name: str, like: str, days: str) -> None:
    (folder / f"{name}.key").write_bytes((folder / f"{like}.key").read_bytes())
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", days, "-extfile", f"{like}.ext")
    await openssl(folder, "x509", "-req", "-in", f"{like}.csr", "-out", f"{name}.pem", *signed)


def files(folder: Path, ca: str = "ca", own: str = "") -> TlsFiles:
    certificate, key = (str(folder / f"{own}.pem"), str(folder / f"{own}.key")) if own else (None, None)
    return TlsFiles(str(folder / f"{ca}.pem"), certificate, key)
