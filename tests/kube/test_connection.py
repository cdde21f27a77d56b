"""clientConnection: which of it counts, and that no more calls go out than it allows."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from shared.config.document import ConfigSource
from shared.config.settings import ApiSettings
from shared.kube.access import DEFAULT_CONNECTION, ClientConnection, client_connection
from shared.kube.client import KubeClient
from shared.kube.errors import Unreachable
from shared.kube.outcome import CallOutcome
from tests.kube.support import api_server, raw_pod

HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
POD = "/api/v1/namespaces/default/pods/p"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", DEFAULT_CONNECTION),
        (b"clientConnection: {}", DEFAULT_CONNECTION),
        (b"clientConnection: {qps: 0, burst: 0, kubeconfig: ''}", DEFAULT_CONNECTION),
        (b"clientConnection: {kubeconfig: /etc/k}", ClientConnection("/etc/k")),
        (b"clientConnection: {qps: 7}", ClientConnection(None, 7.0, 100)),
        (b"clientConnection: {burst: 3}", ClientConnection(None, 50.0, 3)),
        (b"clientConnection: {qps: 0.5, burst: 2}", ClientConnection(None, 0.5, 2)),
        (b"clientConnection: {qps: -1}", ClientConnection(None, None, 100)),
    ],
)
def test_only_settings_in_the_file_count(text: bytes, found: ClientConnection) -> None:
    assert client_connection(ConfigSource("f", HEAD + text)) == found


def test_without_a_file_there_are_no_settings() -> None:
    assert client_connection(None) == DEFAULT_CONNECTION


@pytest.mark.asyncio
async def test_the_rate_limit_excludes_leases_and_watches() -> None:
    async with api_server() as server:
        client = await KubeClient.open(ApiSettings(server=server.url), given=ClientConnection(None, 1 / 9, 1))
        assert await client.get(POD) is None
        waits = asyncio.create_task(client.get(POD))
        await asyncio.sleep(0)
        await client.call("GET", LEASES)
        stream = await client.stream("/api/v1/pods?watch=1", 5.0)
        stream.close()
        assert not waits.done()
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        await client.close()


@pytest.mark.asyncio
async def test_the_rate_limit_holds() -> None:
    async with api_server() as server:
        client = await KubeClient.open(ApiSettings(server=server.url), given=ClientConnection(None, 20.0, 2))
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[client.get(POD) for _ in range(6)])
        assert asyncio.get_running_loop().time() - began >= 4 / 20
        await client.close()


@pytest.mark.asyncio
async def test_a_call_that_the_rate_limit_delays_too_long_is_unreachable() -> None:
    async with api_server() as server:
        server.store_raw("pods", raw_pod("p"))
        client = await KubeClient.open(ApiSettings(server=server.url), given=ClientConnection(None, 0.05, 1))
        assert await client.get(POD) is not None
        with pytest.raises(Unreachable, match=r"not sent: at 0\.05 calls a second") as late:
            await client.call("DELETE", POD)
        assert not late.value.maybe_done
        assert (await client.try_call("DELETE", POD)).outcome is CallOutcome.UNREACHABLE
        assert server.stored("pods", "p", "default")
        await client.close()


@pytest.mark.asyncio
async def test_the_files_kubeconfig_is_the_fallback(tmp_path: Path) -> None:
    async with api_server() as server:
        config = {
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        path = tmp_path / "config"
        path.write_bytes(msgspec.json.encode(config))
        for settings in (ApiSettings(), ApiSettings(server=server.url)):
            client = await KubeClient.open(settings, given=ClientConnection(str(path)))
            assert client.server == server.url
            await client.close()
