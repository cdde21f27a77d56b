"""Proxies on the way to an HTTP server. Their URLs may hold a password, so nothing that is said of them repeats it."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from shared.errors import UserError


def proxy_of_environment(server: str) -> str | None:
    """As HTTPS_PROXY, HTTP_PROXY and NO_PROXY say; `host:port` is a proxy that speaks HTTP."""
    parts = urlsplit(server)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not proxy:
        return None
    return checked_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{parts.scheme.upper()}_PROXY")


def checked_proxy(proxy: str, what: str) -> str:
    """The same; UserError if it cannot be used."""
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018 - raises if it is no number
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"{what}: only http and https proxies can be used, such as http://host:3128")
    return proxy


def reason_of(cause: Exception) -> str:
    """Why a request failed, in the words of what it failed by."""
    if isinstance(cause, aiohttp.ClientHttpProxyError):  # whose text has the proxy's URL
        return f"the proxy says {cause.status} {cause.message}"
    return str(cause) or type(cause).__name__
