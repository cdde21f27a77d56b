"""TLS towards servers: always verified, host name included; problems are described in one line."""

import os
import ssl
from dataclasses import dataclass

from shared.errors import UserError

EXPIRED, NOT_YET = 10, 9
UNSIGNED = frozenset({2, 18, 19, 20, 21})
OTHER_HOST = frozenset({62, 64})
"""OpenSSL's codes for a certificate that it rejects."""
_ALERTS = {
    "CERTIFICATE_REQUIRED": "it asks for a certificate of ours",
    "CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "UNKNOWN_CA": "it does not know who signed our certificate",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "HANDSHAKE_FAILURE": "it does not accept our certificate, or wants one",
    "WRONG_VERSION_NUMBER": "the server does not support TLS",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """`ca`: the authorities that sign servers' certificates, by default the system's. `certificate`, `key`: our own."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files. UserError if one of them is unusable."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as cause:
            raise UserError(f"{self.ca}: {_unusable(cause, 'certificates of authorities')}") from cause
        if self.certificate is not None:
            _load_own(context, self.certificate, self.key)
        elif self.key is not None:
            raise UserError(f"{self.key}: a key without its certificate")
        return context

    def check(self) -> None:
        """UserError if a named file is unusable. The system's authorities are read only for a TLS connection."""
        if self != TlsFiles():
            self.context()

    @staticmethod
    def refuses(error: BaseException | None) -> bool:
        """Whether client or server rejects the other's certificate, which waiting does not mend."""
        broken_off = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
        return isinstance(error, ssl.SSLError) and not isinstance(error, broken_off)

    def problem(self, error: ssl.SSLError) -> str:
        """What is wrong with the server's certificate or ours."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._why_not_trusted(error)
        reason = error.reason or ""
        known = next((text for alert, text in _ALERTS.items() if alert in reason), "")
        return known or f"TLS fails: {reason.lower().replace('_', ' ') or 'broken off'}"

    def _why_not_trusted(self, error: ssl.SSLCertVerificationError) -> str:
        code = error.verify_code
        if code == EXPIRED:
            return "its certificate has expired"
        if code == NOT_YET:
            return "its certificate is not valid yet"
        if code in OTHER_HOST:
            return "its certificate is for another host"
        if code in UNSIGNED:
            by = "an authority that the system trusts" if self.ca is None else f"those in {self.ca}"
            return f"its certificate is not signed by {by}"
        return f"its certificate is not accepted: {error.verify_message}"


def _load_own(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Refuse a key with a password: there is no terminal to ask for it."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as cause:
        name = certificate if key is None else f"{certificate}, {key}"
        raise UserError(f"{name}: {_unusable(cause, 'a certificate and its key, without a password')}") from cause


def _unusable(cause: Exception, expected: str) -> str:
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno:
        return os.strerror(cause.errno)
    return f"not {expected}"
