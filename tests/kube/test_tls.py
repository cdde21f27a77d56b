"""Certificates, keys and tokens, against a server that speaks TLS: what is sent, refused, and may be replaced."""

import asyncio
import base64
import logging
import random
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from shared.config.settings import ApiSettings
from shared.errors import UserError
from shared.kube import credentials as kubeconfigs
from shared.kube.access import find_access
from shared.kube.client import KubeClient
from shared.kube.errors import Unauthorized, Unreachable
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from tests.kube import pki
from tests.kube.support import until
from tests.kube.tlsserver import TlsServer, proxy_server, tls_server

pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXEC_VERSION = "client.authentication.k8s.io/v1"
PLUGIN = """\
#!{python}
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
runs = folder / "runs"
number = int(runs.read_text() or 0) if runs.exists() else 0
runs.write_text(str(number + 1))
(folder / "info").write_text(os.environ["KUBERNETES_EXEC_INFO"])
answers = json.loads((folder / "answers").read_text())
print(json.dumps(answers[min(number, len(answers) - 1)]))
"""


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[TlsServer]:
    async with tls_server(tmp_path) as started:
        yield started


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.access.REFRESH_AFTER_REFUSAL", 0.0)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ApiSettings:
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"certificate-authority-data": encoded(pki.AUTHORITY), **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_bytes(msgspec.json.encode(config))
    return ApiSettings(kubeconfig=str(path))


def plugin(folder: Path, *answers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The user whose credentials a program gives, the next with each run."""
    program = folder / "plugin"
    program.write_text(PLUGIN.format(python=sys.executable, folder=str(folder)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    said = [{"apiVersion": EXEC_VERSION, "kind": "ExecCredential", "status": status} for status in answers]
    (folder / "answers").write_bytes(msgspec.json.encode(said))
    return {"exec": {"apiVersion": EXEC_VERSION, "command": "./plugin", **fields}}


def certificate(text: str, key: str, seconds: float | None = None) -> dict[str, Any]:
    status = {"clientCertificateData": text, "clientKeyData": key}
    return status if seconds is None else status | until_in(seconds)


def until_in(seconds: float) -> dict[str, Any]:
    return {"expirationTimestamp": datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def runs(folder: Path) -> int:
    return int((folder / "runs").read_text())


@asynccontextmanager
async def client_of(settings: ApiSettings) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(settings)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: KubeClient) -> None:
    assert await client.observe_pod("default", "nobody") is None


async def test_the_kubeconfigs_certificate_is_used(server: TlsServer, tmp_path: Path) -> None:
    user = {"client-certificate-data": encoded(pki.FIRST), "client-key-data": encoded(pki.FIRST_KEY)}
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        await ask(client)
    assert server.subjects == ["first"]


async def test_a_server_of_another_authority_is_not_trusted(server: TlsServer, tmp_path: Path) -> None:
    settings = kubeconfig(tmp_path, {"server": server.url, "certificate-authority-data": ""}, {"token": "t"})
    async with client_of(settings) as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.observe_pod("default", "nobody")
    assert server.asked == []


async def test_verification_can_be_turned_off(server: TlsServer, tmp_path: Path) -> None:
    cluster = {"server": server.url, "certificate-authority-data": "", "insecure-skip-tls-verify": True}
    async with client_of(kubeconfig(tmp_path, cluster, {"token": "t"})) as client:
        await ask(client)
    assert [each.authorization for each in server.asked] == ["Bearer t"]


@pytest.mark.parametrize(("name", "right"), [("api.internal", True), ("api.elsewhere", False)])
async def test_the_verified_name_can_be_set(server: TlsServer, tmp_path: Path, name: str, right: bool) -> None:
    async with client_of(kubeconfig(tmp_path, {"server": server.url, "tls-server-name": name}, {})) as client:
        if right:
            await ask(client)
        else:
            with pytest.raises(Unreachable, match=r"api\.elsewhere"):
                await client.observe_pod("default", "nobody")
    assert set(server.names) == {name}


async def test_rotated_certificates_are_read_again(server: TlsServer, tmp_path: Path) -> None:
    (tmp_path / "crt").write_text(pki.FIRST)
    (tmp_path / "key").write_text(pki.FIRST_KEY)
    user = {"client-certificate": "crt", "client-key": "key"}
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        await ask(client)
        (tmp_path / "crt").write_text(pki.SECOND)
        (tmp_path / "key").write_text(pki.SECOND_KEY)
        server.admits = lambda asked: asked.subject == "second"
        await ask(client)
    assert server.subjects == ["first", "first", "second"]


async def test_a_half_rotated_pair_keeps_the_old_one(server: TlsServer, tmp_path: Path) -> None:
    (tmp_path / "crt").write_text(pki.FIRST)
    (tmp_path / "key").write_text(pki.FIRST_KEY)
    access = await find_access(
        kubeconfig(tmp_path, {"server": server.url}, {"client-certificate": "crt", "client-key": "key"})
    )
    before = access.tls
    (tmp_path / "crt").write_text(pki.SECOND)
    assert not await access.refresh()
    assert access.tls is before
    (tmp_path / "key").write_text(pki.SECOND_KEY)
    assert await access.refresh()
    assert access.tls is not before


async def test_unchanged_material_keeps_its_connections(server: TlsServer, tmp_path: Path) -> None:
    user = {"client-certificate-data": encoded(pki.FIRST), "client-key-data": encoded(pki.FIRST_KEY)}
    access = await find_access(kubeconfig(tmp_path, {"server": server.url}, user))
    before = access.tls
    assert not await access.refresh()
    assert access.tls is before


async def test_calls_in_flight_outlive_their_certificate(server: TlsServer, tmp_path: Path) -> None:
    user = plugin(
        tmp_path, certificate(pki.FIRST, pki.FIRST_KEY, 600.0), certificate(pki.SECOND, pki.SECOND_KEY, 600.0)
    )
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        server.answering.clear()
        early = asyncio.create_task(ask(client))
        await until(lambda: server.subjects == ["first"])
        await client._access.refresh(refused=True)
        late = asyncio.create_task(ask(client))
        await until(lambda: server.subjects == ["first", "second"])
        server.answering.set()
        await asyncio.gather(early, late)
        await ask(client)
    assert server.subjects == ["first", "second", "second"]
    assert runs(tmp_path) == 2


async def test_a_plugin_is_run_again_before_its_credential_ends(server: TlsServer, tmp_path: Path) -> None:
    user = plugin(tmp_path, certificate(pki.FIRST, pki.FIRST_KEY, 0.0), certificate(pki.SECOND, pki.SECOND_KEY, 600.0))
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        await until(client._access.is_stale)
        await ask(client)
        await ask(client)
    assert server.subjects == ["second", "second"]
    assert runs(tmp_path) == 2


async def test_a_plugin_is_not_run_while_its_credential_holds(
    server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kube.access.REFRESH_EVERY", 0.0)
    user = plugin(tmp_path, {"token": "a", **until_in(3600)}, {"token": "b"})
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        for _ in range(3):
            await ask(client)
            assert not await client._access.refresh()
    assert {each.authorization for each in server.asked} == {"Bearer a"}
    assert runs(tmp_path) == 1


async def test_a_refused_credential_is_requested_again_once(server: TlsServer, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "a"}, {"token": "b"}, {"token": "c"})
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        server.admits = lambda asked: asked.authorization == "Bearer b"
        await asyncio.gather(*[ask(client) for _ in range(10)])
        assert runs(tmp_path) == 2
        server.admits = lambda asked: False
        with pytest.raises(Unauthorized):
            await client.observe_pod("default", "nobody")
    assert runs(tmp_path) == 3
    assert [each.authorization for each in server.asked[-2:]] == ["Bearer b", "Bearer c"]


async def test_a_plugin_may_return_token_and_certificate(server: TlsServer, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "a", **certificate(pki.FIRST, pki.FIRST_KEY)})
    async with client_of(kubeconfig(tmp_path, {"server": server.url}, user)) as client:
        await ask(client)
    assert [(each.subject, each.authorization) for each in server.asked] == [("first", "Bearer a")]


async def test_a_plugin_gets_the_cluster_on_request(server: TlsServer, tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}
    cluster = {"server": server.url, "extensions": [extension]}
    await find_access(kubeconfig(tmp_path, cluster, plugin(tmp_path, {"token": "a"}, provideClusterInfo=True)))
    told = msgspec.json.decode((tmp_path / "info").read_bytes())
    assert (told["kind"], told["spec"]["interactive"]) == ("ExecCredential", False)
    assert told["spec"]["cluster"]["server"] == server.url
    assert told["spec"]["cluster"]["certificate-authority-data"] == encoded(pki.AUTHORITY)
    assert told["spec"]["cluster"]["config"] == {"audience": "us"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "must be one of"),
        ({"command": "./nothing", "installHint": "install it"}, "cannot be run: No such file or directory; install it"),
        ({"interactiveMode": "Always"}, "no terminal"),
        ({"command": "/bin/false"}, "ended with exit code 1"),
        ({"command": "/bin/echo", "args": ["hunter2"]}, "not an ExecCredential"),
    ],
)
async def test_plugin_errors_are_reported(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    settings = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, plugin(tmp_path, {"token": "a"}, **fields))
    with pytest.raises(UserError, match=said) as caught:
        await find_access(settings)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [{}, {"clientCertificateData": pki.FIRST}, {"token": 7}])
async def test_an_incomplete_credential_is_refused(tmp_path: Path, status: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"exec \./plugin: "):
        await find_access(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, plugin(tmp_path, status)))


async def test_a_hanging_plugin_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.access.REFRESH_PATIENCE", 0.3)
    user = {"exec": {"apiVersion": EXEC_VERSION, "command": "sleep", "args": [60]}}
    with pytest.raises(UserError, match=r"no credentials within 0\.3 s"):
        await find_access(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, user))


async def test_a_pod_reads_its_token_and_authority_again(
    server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    (tmp_path / "ca.crt").write_text(pki.AUTHORITY)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(kubeconfigs, "SERVICE_ACCOUNT", tmp_path)
    async with client_of(ApiSettings()) as client:
        await ask(client)
        token.write_text("new\n")
        server.admits = lambda asked: asked.authorization == "Bearer new"
        await ask(client)
    assert [each.authorization for each in server.asked] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_proxy_of_the_kubeconfig_is_used(server: TlsServer, tmp_path: Path) -> None:
    user = {"client-certificate-data": encoded(pki.FIRST), "client-key-data": encoded(pki.FIRST_KEY)}
    async with proxy_server() as (proxy, targets):
        cluster = {"server": server.url, "proxy-url": proxy, "tls-server-name": "api.internal"}
        async with client_of(kubeconfig(tmp_path, cluster, user)) as client:
            await ask(client)
    assert targets == [f"127.0.0.1:{server.port}"]
    assert (server.subjects, server.names) == (["first"], ["api.internal"])


async def test_the_user_agent_names_the_service(server: TlsServer, tmp_path: Path) -> None:
    settings = kubeconfig(tmp_path, {"server": server.url}, {"token": "t"})
    telemetry = Telemetry(Metrics(), Tracer("binder", "b", ids=random.Random(1)), logging.getLogger("flotilla.binder"))
    for client in (await KubeClient.open(settings, telemetry), await KubeClient.open(settings, agent="somebody")):
        await ask(client)
        await client.close()
    assert [each.agent for each in server.asked] == [f"flotilla-binder/{version('flotilla')}", "somebody"]


async def test_an_unusable_proxy_is_refused(tmp_path: Path) -> None:
    settings = kubeconfig(tmp_path, {"server": "https://host", "proxy-url": "socks5://proxy:1080"}, {"token": "t"})
    with pytest.raises(UserError, match="proxy-url: only http and https"):
        await find_access(settings)
