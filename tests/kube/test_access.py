"""Finding the server and credentials: an error is one line without secrets."""

import asyncio
import base64
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.config.settings import ApiSettings
from shared.errors import UserError
from shared.kube.access import Access, find_access
from shared.kube.client import KubeClient
from shared.kube.credentials import KubeCredentials
from shared.kube.errors import Unauthorized, Unreachable
from testing.simulator.service import SimulatorOptions
from tests.kube.support import api_server

pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SECRET = "hunter2"


def kubeconfig(folder: Path, server: str = "http://127.0.0.1:1", **user: Any) -> ApiSettings:
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_bytes(msgspec.json.encode(config))
    return ApiSettings(kubeconfig=str(path))


async def problem(settings: ApiSettings) -> str:
    with pytest.raises(UserError) as caught:
        await find_access(settings)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    return text


async def test_a_url_and_a_token_are_enough() -> None:
    access = await find_access(ApiSettings(server="https://host:6443/", token=" t\n"))
    assert (access.server, access.authorization) == ("https://host:6443", "Bearer t")


@pytest.mark.parametrize("server", ["host:6443", "ftp://host", "https://", "https://host:port", "https://host?x=y"])
async def test_an_invalid_url_is_refused(server: str) -> None:
    assert await problem(ApiSettings(server=server)) == f"server: {server!r} is not a URL such as https://host:6443"


async def test_a_password_in_a_url_is_refused() -> None:
    assert "is not accepted" in await problem(ApiSettings(server=f"https://me:{SECRET}@host"))


async def test_outside_a_pod_a_server_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert (await problem(ApiSettings())).startswith("no API server: neither a server nor a kubeconfig was named")


async def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert await problem(ApiSettings(kubeconfig=str(path))) == f"{path}: no such file"


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    settings = kubeconfig(tmp_path, token=SECRET)
    text = await problem(ApiSettings(kubeconfig=settings.kubeconfig, context="there"))
    assert text.startswith(f"{settings.kubeconfig}: ")
    assert "there" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 1: "),
        ("just text", "not a usable kubeconfig"),
        ("- 1\n- 2\n", "not a usable kubeconfig"),
        (f"users: [{{user: {{token: {SECRET}}}}}]\n", "current-context"),
        (f"users: [{{name: u, user: {{token: {SECRET}}}}}]\ncurrent-context: x\n", "x"),
    ],
)
async def test_an_invalid_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    told = await problem(ApiSettings(kubeconfig=str(path)))
    assert told.startswith(f"{path}: ")
    assert said in told


async def test_invalid_certificates(tmp_path: Path) -> None:
    nonsense = base64.b64encode(SECRET.encode()).decode()
    settings = kubeconfig(
        tmp_path, "https://host", **{"client-certificate-data": nonsense, "client-key-data": nonsense}
    )
    assert (await problem(settings)).startswith(f"{settings.kubeconfig}: certificates: ")


async def test_a_user_and_password_of_a_kubeconfig_are_used(tmp_path: Path) -> None:
    access = await find_access(kubeconfig(tmp_path, username="me", password=SECRET))
    assert access.authorization == f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"


async def test_data_that_is_not_base64_is_named(tmp_path: Path) -> None:
    settings = kubeconfig(tmp_path, "https://host", **{"client-certificate-data": "x"})
    assert await problem(settings) == f"{settings.kubeconfig}: client-certificate-data: not base64"


async def test_a_context_may_have_no_user(tmp_path: Path) -> None:
    path = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://host:1"}}
    contexts = [{"name": "here", "context": {"cluster": "c"}}]
    path.write_bytes(msgspec.json.encode({"clusters": [cluster], "contexts": contexts}))
    access = await find_access(ApiSettings(kubeconfig=str(path), context="here"))
    assert (access.server, access.authorization) == ("http://host:1", None)


async def test_an_auth_provider_is_left_to_kubernetes_asyncio(tmp_path: Path) -> None:
    claims = base64.b64encode(msgspec.json.encode({"exp": 32_503_680_000})).decode().rstrip("=")
    user: dict[str, Any] = {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{claims}.c"}}}
    access = await find_access(kubeconfig(tmp_path, **user))
    assert access.authorization == f"Bearer a.{claims}.c"


async def test_a_plain_kubeconfig_imports_no_generated_client(tmp_path: Path) -> None:
    """Importing it costs each service more than the rest of its start."""
    path = kubeconfig(tmp_path, token=SECRET).kubeconfig
    program = (
        "import asyncio, sys; from shared.config.settings import ApiSettings;"
        " from shared.kube.access import find_access;"
        f" asyncio.run(find_access(ApiSettings(kubeconfig={path!r}))); assert 'kubernetes_asyncio' not in sys.modules"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=True, timeout=60)


async def test_a_token_of_a_kubeconfig_is_used(tmp_path: Path) -> None:
    async with api_server(SimulatorOptions(kubelet=False, token=SECRET)) as server:
        client = await KubeClient.open(kubeconfig(tmp_path, server.url, token=SECRET))
        assert await client.observe_pod("default", "nobody") is None
        await client.close()


async def test_a_rotated_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.access.REFRESH_AFTER_REFUSAL", 0.0)
    token = tmp_path / "token"
    token.write_text("old")
    async with api_server(SimulatorOptions(kubelet=False, token="new")) as server:
        client = await KubeClient.open(kubeconfig(tmp_path, server.url, tokenFile=str(token)))
        with pytest.raises(Unauthorized):
            await client.observe_pod("default", "nobody")
        token.write_text("new")
        assert await client.observe_pod("default", "nobody") is None
        await client.close()


async def test_a_token_is_read_again_periodically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.access.REFRESH_EVERY", 0.0)
    token = tmp_path / "token"
    token.write_text("old")
    access = await find_access(kubeconfig(tmp_path, tokenFile=str(token)))
    assert access.authorization == "Bearer old"
    token.write_text("new\n")
    assert access.is_stale()
    assert await access.refresh()
    assert access.authorization == "Bearer new"
    token.unlink()
    assert not await access.refresh()
    assert access.authorization == "Bearer new"


async def test_a_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin", "expirationTimestamp": "2999-01-01T00:00:00Z"},
    }
    plugin.write_text(f"#!{sys.executable}\nprint('''{msgspec.json.encode(answer).decode()}''')\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    access = await find_access(kubeconfig(tmp_path, exec=run))
    assert access.authorization == "Bearer from-plugin"


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1,.internal")
    assert (await find_access(ApiSettings(server="https://host:6443"))).proxy == "http://proxy:3128"
    assert (await find_access(ApiSettings(server="https://10.0.0.1:6443"))).proxy is None
    assert (await find_access(ApiSettings(server="https://api.internal"))).proxy is None


async def test_a_proxy_without_a_scheme_speaks_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "proxy:3128")
    assert (await find_access(ApiSettings(server="https://host:6443"))).proxy == "http://proxy:3128"


@pytest.mark.parametrize("proxy", [f"socks5://me:{SECRET}@proxy:1080", f"http://me:{SECRET}@[proxy", "http://:1"])
async def test_an_unusable_proxy_is_reported_without_its_password(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kubeconfig(tmp_path, "https://host")
    path = Path(settings.kubeconfig or "")
    config = msgspec.json.decode(path.read_bytes())
    config["clusters"][0]["cluster"]["proxy-url"] = proxy
    path.write_bytes(msgspec.json.encode(config))
    assert "proxy-url: only http and https proxies" in await problem(settings)
    monkeypatch.setenv("https_proxy", proxy)
    assert (await problem(ApiSettings(server="https://host"))).startswith("HTTPS_PROXY: only http and https proxies")


async def test_a_refusing_proxy_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://me:{SECRET}@127.0.0.1:{port}")
    client = await KubeClient.open(ApiSettings(server="https://host.invalid"))
    with pytest.raises(Unreachable, match="the proxy says 407 Who are you") as refused:
        await client.stream("/api/v1/pods", 5.0)
    assert SECRET not in str(refused.value)
    assert not refused.value.maybe_done
    await client.close()
    proxy.close()


async def test_concurrent_callers_share_one_refresh() -> None:
    looks = 0

    async def look(refused: bool) -> KubeCredentials:
        nonlocal looks
        looks += 1
        return KubeCredentials(f"token {looks}")

    access = Access("http://host", KubeCredentials("token 0"), look=look)
    assert all(await asyncio.gather(*[access.refresh() for _ in range(10)]))
    assert (looks, access.authorization) == (1, "token 1")
    await access.close()


async def test_credentials_that_are_refused_during_a_refresh_are_replaced() -> None:
    """The refresh under way does not know of it, and may find the same ones valid still."""
    old, new = KubeCredentials("Bearer old"), KubeCredentials("Bearer new")
    looks: list[bool] = []
    looking, may_end = asyncio.Event(), asyncio.Event()

    async def look(refused: bool) -> KubeCredentials:
        looks.append(refused)
        looking.set()
        await may_end.wait()
        return new if refused else old

    access = Access("http://host", old, look=look)
    await access.freshen()
    await looking.wait()
    refreshing = [asyncio.create_task(access.refresh(refused=True, generation=0)) for _ in range(2)]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*refreshing) == [True, True]
    assert (looks, access.authorization) == ([False, True], "Bearer new")
    await access.close()
