"""Requests as bytes. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from shared.errors import UserError

PORTS = {"http": 80, "https": 443}
TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Characters of a header's name."""


@dataclass(frozen=True, slots=True)
class Address:
    """Of a server or proxy. `host`: without brackets, in ASCII. `authority`: as in a Host header."""

    scheme: str
    host: str
    port: int
    authority: str
    path: str = ""
    """Before the path of each request; without a slash at its end."""
    basic: str = field(default="", repr=False)
    """The user and password of the URL, as a value of an Authorization header."""

    @classmethod
    def of(cls, url: str) -> Self:
        """UserError if it is no URL of http or https."""
        try:
            parts = urlsplit(url)
            host, port = _ascii(parts.hostname or ""), parts.port or PORTS[parts.scheme]
        except (ValueError, KeyError):
            host, port = "", 0
        if not host:
            raise UserError("not a URL such as https://host:6443")
        shown = f"[{host}]" if ":" in host else host
        authority = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
        basic = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(parts.scheme, host, port, authority, quoted(parts.path.rstrip("/")), basic)

    @property
    def target(self) -> str:
        """Host and port, as a CONNECT request names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RequestFormat:
    """What requests to one server have in common. `fields`: headers of each."""

    def __init__(self, server: Address, proxy: Address | None, fields: Mapping[str, str]) -> None:
        """A proxy gets requests for an http server itself, with the whole URL; for https it only connects."""
        self._before = server.path.encode()
        own = {"Host": server.authority}
        if proxy is not None and server.scheme == "http":
            self._before = f"http://{server.authority}{server.path}".encode()
            if proxy.basic:
                own["Proxy-Authorization"] = proxy.basic
        self._common = header_lines(own | dict(fields))

    def head(self, fields: Mapping[str, str]) -> bytes:
        """The headers of a kind of request, for `request`. UserError if one of them cannot be sent."""
        return b" HTTP/1.1\r\n" + self._common + header_lines(fields)

    def request(self, method: str, path: str, head: bytes, body: bytes | None) -> bytes:
        """`path`: ASCII, begins with a slash, and may have an encoded query. None: there is no body."""
        line = method.encode() + b" " + self._before + path.encode() + head
        return line + b"\r\n" if body is None else b"%bContent-Length: %d\r\n\r\n%b" % (line, len(body), body)


def connect_request(server: Address, proxy: Address, agent: str) -> bytes:
    """Asks a proxy for a tunnel to the server."""
    fields = {"Host": server.target, "User-Agent": agent}
    if proxy.basic:
        fields["Proxy-Authorization"] = proxy.basic
    return f"CONNECT {server.target} HTTP/1.1\r\n".encode() + header_lines(fields) + b"\r\n"


def header_lines(fields: Mapping[str, str]) -> bytes:
    """UserError, without the value, if it has characters that no header may have, such as a line break."""
    for name, value in fields.items():
        if not (name and TOKEN.issuperset(name) and value.isascii() and value.isprintable()):
            raise UserError(f"a {name} header cannot be sent: only printable ASCII is possible")
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()


def quoted(path: str) -> str:
    """With everything encoded that no path or query may have; what is encoded already stays."""
    return quote(path, safe="/%?:@!$&'()*+,;=~")


def _ascii(host: str) -> str:
    """The form in which DNS has an international name."""
    return host if host.isascii() else host.encode("idna").decode()
