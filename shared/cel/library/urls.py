"""URLs as Go's net/url reads them, with its errors."""

import re
from urllib.parse import quote

from shared.cel import types
from shared.cel.declarations import Overload, member
from shared.cel.types import BOOL, STRING, URL
from shared.cel.values import CelMap, Url, Value, go_quote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_ESCAPED_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]%/]*")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
_PATH_SAFE = "/$&+,:=;@-_.~"


def parse_request_uri(text: str) -> Url:
    """An absolute URL or path, as `url()` takes it; ValueError with Go's text for others."""
    _split(text, text, request=True)
    before, hash_sign, fragment = text.partition("#")
    url = _split(before, before, request=False)
    if hash_sign:
        _check_escapes(before, fragment)
    return Url(f"{url.text}#{fragment}" if fragment else url.text, url.scheme, url.host, url.path, url.query)


def _wrong(text: str, reason: str) -> ValueError:
    return ValueError(f"parse {go_quote(text)}: {reason}")


def _split(text: str, rest: str, request: bool) -> Url:
    if any(character < " " or character == "\x7f" for character in text):
        raise _wrong(text, "net/url: invalid control character in URL")
    if not text and request:
        raise _wrong(text, "empty url")
    if text == "*":
        return Url(text, "", "", "*", "")
    if text.startswith(":"):
        raise _wrong(text, "missing protocol scheme")
    match = _SCHEME.match(text)
    scheme = match[0][:-1].lower() if match else ""
    rest = text[match.end() :] if match else text
    rest, question, query = rest.partition("?")
    suffix = f"?{query}" if question else ""
    if not rest.startswith("/"):
        if scheme:
            return Url(f"{scheme}:{rest}{suffix}", scheme, "", "", query)  # opaque
        if request:
            raise _wrong(text, "invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _wrong(text, "first path segment in URL cannot contain colon")
    host = authority = ""
    if (scheme or (not request and not rest.startswith("///"))) and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _host(text, authority)
    _check_escapes(text, rest)
    path = rest if _ESCAPED_PATH.fullmatch(rest) else quote(_unescaped(rest), safe=_PATH_SAFE)
    start = f"{scheme}:" if scheme else ""
    return Url(f"{start}{'//' if authority else ''}{authority}{path}{suffix}", scheme, host, path, query)


def _host(text: str, authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise _wrong(text, "missing ']' in host")
        _check_port(text, host[closing + 1 :])
    elif ":" in host:
        _check_port(text, host[host.rfind(":") :])
    _check_escapes(text, host)
    for character in host:
        if not _HOST.match(character):
            raise _wrong(text, f"invalid character {go_quote(character)} in host name")
    if at:
        if not _USER.fullmatch(user):
            raise _wrong(text, "net/url: invalid userinfo")
        _check_escapes(text, user)
    return _unescaped(host)


def _check_port(text: str, port: str) -> None:
    if port and not re.fullmatch(r":[0-9]*", port):
        raise _wrong(text, f"invalid port {go_quote(port)} after host")


def _check_escapes(text: str, part: str) -> None:
    match = _ESCAPE.search(part)
    if match:
        raise _wrong(text, f"invalid URL escape {go_quote(part[match.start() : match.start() + 3])}")


def _unescaped(text: str) -> str:
    octets = re.sub(
        rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), text.encode(errors="surrogatepass")
    )
    return octets.decode(errors="replace")


def _url(text: str) -> Url:
    try:
        return parse_request_uri(text)
    except ValueError as cause:
        raise ValueError(f"URL parse error during conversion from string: {cause}") from None


def uri_problem(text: str) -> str | None:
    """Why a text is no URI; None if it is one."""
    try:
        _split(text, text, request=True)
    except ValueError as cause:
        return str(cause)
    return None


def _host_and_port(url: Url) -> tuple[str, str]:
    host, colon, port = url.host.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*", port):
        host, port = url.host, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _query(url: Url) -> Value:
    values = CelMap()
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        if _ESCAPE.search(name) or _ESCAPE.search(value):
            continue
        name, value = _unescaped(name.replace("+", " ")), _unescaped(value.replace("+", " "))
        known, found = values.find(name)
        values.insert(name, [*known, value] if found and isinstance(known, list) else [value])
    return values


FUNCTIONS = [
    Overload("url", "string_to_url", [STRING], URL, _url),
    member("getScheme", "url_get_scheme", [URL], STRING, lambda url: url.scheme),
    member("getHost", "url_get_host", [URL], STRING, lambda url: url.host),
    member("getHostname", "url_get_hostname", [URL], STRING, lambda url: _host_and_port(url)[0]),
    member("getPort", "url_get_port", [URL], STRING, lambda url: _host_and_port(url)[1]),
    member("getEscapedPath", "url_get_escaped_path", [URL], STRING, lambda url: url.path),
    member("getQuery", "url_get_query", [URL], types.map_of(STRING, types.list_of(STRING)), _query),
    Overload("isURL", "is_url_string", [STRING], BOOL, lambda text: uri_problem(text) is None),
]
