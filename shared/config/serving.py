"""Whether the HTTP endpoints of a process speak TLS."""

from ipaddress import ip_address

from shared.config.settings import Settings


def serves_tls(settings: Settings) -> bool:
    """Unless the settings say so or otherwise: on all addresses but this machine's own."""
    if settings.http_scheme == "auto":
        return not _is_loopback(settings.http_host)
    return settings.http_scheme == "https"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
