"""Proxies for HTTP. Their URLs may hold a password, so no message shows them."""

import os
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from shared.errors import UserError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
PORTS = {"http": 80, "https": 443}


def proxy_of_environment(server: str) -> str | None:
    """As HTTPS_PROXY, HTTP_PROXY and NO_PROXY say, in capitals or small; `host:port` is a proxy that speaks HTTP."""
    parts = urlsplit(server)
    scheme = parts.scheme.upper()
    proxy = _variable(f"{scheme}_PROXY")
    if not proxy or goes_direct(parts.hostname or "", parts.port or PORTS[parts.scheme], _variable("NO_PROXY")):
        return None
    return checked_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{scheme}_PROXY")


def goes_direct(host: str, port: int, no_proxy: str) -> bool:
    """Whether no proxy is used for this host and port, decided as in Go's clients.

    This machine is always reached directly. `no_proxy` is a list with commas: `*` (everything), addresses, address
    ranges (10.0.0.0/8), domains with all below them, and below `.example.com` or `*.example.com` alone. All but ranges
    may have a port. Names are not resolved, so ranges are for servers that are named by their address.
    """
    host = _ascii(host).lower().partition("%")[0]  # the zone of an IPv6 address says nothing of where it is
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return "*" in entries or any(_covers(entry, host, address, port) for entry in entries if entry)


def _covers(entry: str, host: str, address: Address | None, port: int) -> bool:
    network = _network(entry) if "/" in entry else None
    if network is not None:
        return address is not None and address in network
    name, of_port = _host_and_port(entry)
    if not name or of_port not in ("", str(port)):
        return False
    literal = _address(name)
    if literal is not None:
        return literal == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    domain = _ascii(name.removeprefix("."))
    return host.endswith(f".{domain}") or (host == domain and not name.startswith("."))


def _host_and_port(entry: str) -> tuple[str, str]:
    """Split off a port. An IPv6 address with a port is in brackets."""
    if entry.startswith("["):
        name, closed, rest = entry[1:].partition("]")
        return (name, rest[1:]) if closed and rest.startswith(":") else ("", "")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False) if text.rpartition("/")[2].isdecimal() else None
    except ValueError:
        return None


def _ascii(host: str) -> str:
    """The form in which DNS has an international name."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.lower(), "")


def checked_proxy(proxy: str, what: str) -> str:
    """Return the URL; UserError if it is unusable."""
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018 - raises if it is no number
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"{what}: only http and https proxies can be used, such as http://host:3128")
    return proxy
