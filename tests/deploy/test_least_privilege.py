"""A whole pipeline with the credentials that `flotilla credentials` makes: TLS, and each service with its own alone."""

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.store.rights import USERS as REDIS_USERS
from testing.builders import node
from tests.bus.test_real_servers import flotilla, lands
from tests.deploy.test_credentials import make
from tests.pipeline.support import a_cluster, value_of, web
from tests.servers import ConfiguredRedis, configured_nats, configured_redis
from tests.store.test_tls import TlsFront
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[tuple[str, str, Path, ConfiguredRedis]]:
    """host:port of a NATS and of a Redis that take TLS alone; NATS's log."""
    tls = f'tls {{ cert_file: "{folder}/nats.crt", key_file: "{folder}/nats.key" }}\n'
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "valkey.crt", folder / "valkey.key")
    async with (
        configured_nats((folder / "nats-users").read_text() + tls) as nats,
        configured_redis(f'aclfile "{folder}/valkey-users"\n') as redis,
        TlsFront(redis.port, context).running() as front,
    ):
        yield nats.url.partition("://")[2], f"127.0.0.1:{front.port}", nats.folder / "nats-server.log", redis


def own(folder: Path, user: str, nats: str, redis: str) -> dict[str, str]:
    """The settings that a service has in its container, with the servers where they are here."""
    given = {"FLOTILLA_NATS_URL": (folder / f"{user}-nats-url").read_text().replace("nats:4222", nats)}
    given["FLOTILLA_NATS_CA"] = str(folder / "ca.crt")
    if user in REDIS_USERS:
        url = (folder / f"{user}-redis-url").read_text().replace("valkey:6379", redis)
        given["FLOTILLA_REDIS_URL"] = url.replace("/run/secrets", str(folder))
    return given


async def test_every_service_has_its_own_rights_alone_and_pods_are_scheduled(tmp_path: Path) -> None:
    """Pods are bound, one waits, one makes way for another; nothing is asked for that is not allowed."""
    folder = tmp_path / "secrets"
    make(folder)
    async with servers(folder) as (nats, redis, log, _):
        names = PipelineOptions(workers=2).services()
        variables: Mapping[str, Mapping[str, str]] = {
            name: own(folder, kind, nats, redis) for name, kind in names.items()
        }
        options = PipelineOptions(
            workers=2, nats_url=f"tls://{nats}", redis_url=f"rediss://{redis}", variables=variables
        )
        async with Pipeline.running(options) as pipeline, a_cluster(pipeline) as cluster:
            await cluster.create_namespace("a")
            await cluster.create_priorities(little=1, much=100)
            await cluster.create(node("n").capacity(cpu=2, memory="64Gi"))
            await cluster.create(*(web(name, "a").request(cpu=1) for name in "xy"), priorityClassName="little")
            for name in "xy":
                await lands(cluster, name)
            await cluster.create(web("big", "a").request(cpu=8))
            await cluster.create(web("urgent", "a").request(cpu=1), priorityClassName="much")
            await lands(cluster, "urgent", 20.0)
            for name in names:
                answer = await pipeline.ask(name, "/metrics")
                assert answer is not None
                assert "flotilla_bus_forbidden_total{" not in answer.body, name
                assert value_of(answer.body, "flotilla_bus_connection_losses_total") == 0, name
            reader, permitter = (own(folder, user, nats, redis) for user in ("reader", "permitter"))
            assert "a/big" in await flotilla(os.environ | reader, "queue")
            assert "no pod is waiting for a permit (binders: 1)" in await flotilla(permitter, "permit", "list")
            assert not [line for line in pipeline.log_lines if "refuses access" in line]
        assert "iolation" not in log.read_text()
