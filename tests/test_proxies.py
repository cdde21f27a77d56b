"""When no proxy is used: as Go's clients decide it (golang.org/x/net/http/httpproxy)."""

import pytest

from shared.proxies import goes_direct, proxy_of_environment

LIST = (
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, "
    "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64, ported.com:80, other.com:443"
)
DIRECT = {
    "localhost": True,
    "127.0.0.1": True,
    "127.0.0.2": True,
    "::1": True,
    "::2": False,
    "192.168.1.1": True,
    "::ffff:192.168.1.1": True,
    "192.168.1.2": False,
    "192.168.1.3": True,
    "192.168.1.4": False,
    "10.0.0.2": True,
    "10.0.0.4": False,
    "2001:db8::52:0:1": True,
    "2001:db8::52:0:2": False,
    "2001:db8::52:0:3": True,
    "2002:db8:a::123": True,
    "fe80::424b:c8be:1643:a1b6": False,
    "barbaz.net": False,
    "www.barbaz.net": True,
    "barbarbaz.net": False,
    "foobar.com": True,
    "FooBar.com": True,
    "www.foobar.com": True,
    "foofoobar.com": False,
    "localhost.net": False,
    "local.localhost": False,
    "wildcard.io": False,
    "nested.wildcard.io": True,
    "awildcard.io": False,
    "ported.com": True,
    "www.ported.com": True,
    "other.com": False,
}


@pytest.mark.parametrize(("host", "direct"), DIRECT.items())
def test_hosts_at_port_80(host: str, direct: bool) -> None:
    assert goes_direct(host, 80, LIST) == direct
    assert goes_direct(host, 80, "*")
    assert goes_direct(host, 80, f"a, * ,{LIST}")


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        (":1", "example.com"),
        ("", "example.com"),
        (",,", "example.com"),
        (".example.com", "example.com"),
        ("ample.com", "example.com"),
        ("10.0.0.0/255.0.0.0", "10.0.0.1"),
        ("10.0.0.0/33", "10.0.0.1"),
        ("10.0.0.0/8", "ten.example.com"),
        ("[::2]", "::2"),
        ("[", "example.com"),
        ("example.com", "1000::%.example.com"),
        ("**", "example.com"),
    ],
)
def test_what_covers_nothing(entry: str, host: str) -> None:
    assert not goes_direct(host, 80, entry)


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        (".\u793a\u4f8b.com", "www.\u793a\u4f8b.com"),
        ("xn--fsq092h.com", "www.\u793a\u4f8b.com"),
        ("\u793a\u4f8b.com", "www.xn--fsq092h.com"),
        ("10.0.0.1/8", "10.200.0.1"),
        ("::/0", "2001:db8::1"),
    ],
)
def test_what_covers(entry: str, host: str) -> None:
    assert goes_direct(host, 80, entry)


@pytest.mark.parametrize(
    ("variables", "server", "proxy"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://10.96.0.1", "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, "https://10.96.0.1", "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "https://10.96.0.1", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.96.0.0/12"}, "https://10.96.0.1:443", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.96.0.0/12"}, "https://[fd00::1]", "http://proxy:3128"),
        (
            {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": ".svc,.cluster.local"},
            "https://kubernetes.default.svc",
            None,
        ),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "api:443"}, "https://api", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "api:443"}, "https://api:6443", "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://upper", "https_proxy": "http://lower"}, "https://api", "http://upper"),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], server: str, proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of_environment(server) == proxy
