"""Requests as bytes."""

import pytest

from shared.errors import UserError
from shared.http.request import Address, RequestFormat, connect_request, quoted


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "path"),
    [
        ("https://api", "api", 443, "api", ""),
        ("https://api:6443/", "api", 6443, "api:6443", ""),
        ("http://[fd00::1]:80", "fd00::1", 80, "[fd00::1]", ""),
        ("https://[fd00::1]:6443", "fd00::1", 6443, "[fd00::1]:6443", ""),
        ("https://rancher/k8s/clusters/c-1/", "rancher", 443, "rancher", "/k8s/clusters/c-1"),
        ("https://b\u00fccher.example", "xn--bcher-kva.example", 443, "xn--bcher-kva.example", ""),
    ],
)
def test_the_parts_of_a_url(url: str, host: str, port: int, authority: str, path: str) -> None:
    found = Address.of(url)
    assert (found.host, found.port, found.authority, found.path) == (host, port, authority, path)


def test_a_path_is_encoded() -> None:
    assert Address.of("http://host/a b/%20/\u00e4").path == "/a%20b/%20/%C3%A4"
    assert quoted("/x\r\ny?z=1") == "/x%0D%0Ay?z=1"


@pytest.mark.parametrize("url", ["ftp://host", "https://", "host:6443", "https://host:x", "https://host:99999"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UserError, match="not a URL"):
        Address.of(url)


def test_a_request_is_one_piece() -> None:
    shape = RequestFormat(Address.of("https://api:6443/base"), None, {"Accept": "a"})
    head = shape.head({"Content-Type": "b"})
    common = b" HTTP/1.1\r\nHost: api:6443\r\nAccept: a\r\nContent-Type: b\r\n"
    assert shape.request("GET", "/x?y=z", head, None) == b"GET /base/x?y=z" + common + b"\r\n"
    posted = shape.request("POST", "/x", head, b"{}")
    assert posted == b"POST /base/x" + common + b"Content-Length: 2\r\n\r\n{}"
    assert shape.request("DELETE", "/x", head, b"").endswith(b"Content-Length: 0\r\n\r\n")


def test_a_proxy_of_a_plain_server_gets_whole_urls() -> None:
    proxy = Address.of("http://me:p%40ss@proxy:3128")
    shape = RequestFormat(Address.of("http://api/base"), proxy, {})
    request = shape.request("GET", "/x", shape.head({}), None)
    assert request.startswith(b"GET http://api/base/x HTTP/1.1\r\nHost: api\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in request


def test_a_proxy_of_a_secure_server_sees_only_its_address() -> None:
    proxy = Address.of("http://me:p%40ss@proxy:3128")
    shape = RequestFormat(Address.of("https://[fd00::1]"), proxy, {})
    request = shape.request("GET", "/x", shape.head({}), None)
    assert request.startswith(b"GET /x HTTP/1.1\r\n")
    assert b"Proxy" not in request
    asked = connect_request(Address.of("https://[fd00::1]"), proxy, "us")
    assert asked == (
        b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: us\r\n"
        b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
    )


def test_a_password_is_not_shown() -> None:
    assert "c2VjcmV0" not in repr(Address.of("http://a:secret@proxy"))


@pytest.mark.parametrize("value", ["Bearer a\r\nX: y", "Bearer \u00e4", "a\x00b"])
def test_a_header_cannot_become_two(value: str) -> None:
    shape = RequestFormat(Address.of("http://api"), None, {})
    with pytest.raises(UserError, match=r"^a Authorization header cannot be sent") as refused:
        shape.head({"Authorization": value})
    assert value not in str(refused.value)
