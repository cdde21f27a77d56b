"""A whole pipeline on servers as a cluster has them.

NATS takes TLS only, and lets each service do what docs/nats.md says. Redis has the users of docs/redis.md, who may do
what is said there, and a sentinel that gives the master's place to a replica, which lacks the last writes.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.bus.rights import USERS, authorization
from shared.store import rights as redis_rights
from testing.builders import node
from tests.certificates import make_certificates
from tests.pipeline.support import Cluster, a_cluster, until, value_of, web
from tests.servers import ConfiguredNats, configured_nats
from tests.store.support import linked_to
from tests.store.test_sentinel import Watched, part, watched
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.servers import end

pytestmark = pytest.mark.asyncio

FAILOVER = 20.0
"""Seconds until all goes on with the next master."""


REDIS_USERS = "".join(f"user {redis_rights.rule(user, f'>pw-{user}')}\n" for user in redis_rights.USERS)


def redis_user(redis: Watched, user: str) -> dict[str, str]:
    if user not in redis_rights.USERS:
        return {}
    return {"FLOTILLA_REDIS_URL": redis.url.replace("://", f"://{user}:pw-{user}@")}


def as_user(server: ConfiguredNats, folder: Path, user: str) -> dict[str, str]:
    """Settings by which a service or a command is this user."""
    url = server.as_user(f"{user}:pw-{user}").replace("nats://", "tls://")
    return {"FLOTILLA_NATS_URL": url, "FLOTILLA_NATS_CA": str(folder / "ca.pem")}


async def flotilla(settings: Mapping[str, str], *words: str) -> str:
    """What a command says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.cli.main", *words, env=os.environ | settings, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(20):
            said, _ = await process.communicate()
    finally:
        await end(process)
    assert process.returncode == 0
    return said.decode()


async def lands(cluster: Cluster, name: str, patience: float = 10.0) -> None:
    async def bound() -> bool:
        return bool(await cluster.node_of("a", name))

    await until(bound, f"{name} is not bound", patience)


async def lose_the_master(redis: Watched, cluster: Cluster) -> None:
    """What is written last, the one that takes its place has never heard of."""
    async with linked_to(redis.master.url) as master, linked_to(redis.replica.url) as replica:
        await part(master, replica)
    await cluster.create(web("last", "a").request(cpu=1))
    await lands(cluster, "last")
    await redis.master.kill()


async def test_a_pipeline_needs_no_further_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are bound, one waits, one makes way for another; the master of Redis is lost; all is as before."""
    make_certificates(tmp_path)
    for user in USERS:
        monkeypatch.setenv(f"NATS_{user.upper()}", f"pw-{user}")
    tls = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key" }}\n'
    async with configured_nats(authorization() + tls) as nats, watched(REDIS_USERS) as redis:
        names = PipelineOptions(workers=1).services()
        options = PipelineOptions(
            workers=1,
            nats_url=nats.url,
            redis_url=redis.url,
            variables={name: as_user(nats, tmp_path, kind) | redis_user(redis, kind) for name, kind in names.items()},
        )
        async with Pipeline.running(options) as pipeline, a_cluster(pipeline) as cluster:
            await cluster.create_namespace("a")
            await cluster.create_priorities(little=1, much=100)
            await cluster.create(node("n").capacity(cpu=3, memory="64Gi"))
            pods = [web(name, "a").request(cpu=1) for name in ("one", "two")]
            await cluster.create(*pods, priorityClassName="little")
            for name in ("one", "two"):
                await lands(cluster, name)
            await lose_the_master(redis, cluster)
            await cluster.create(web("big", "a").request(cpu=8))
            await cluster.create(web("urgent", "a").request(cpu=1), priorityClassName="much")
            await lands(cluster, "urgent", FAILOVER)
            terms = [
                line for line in pipeline.log_lines if "snapshot" in line and " begins; the one before was" in line
            ]
            assert len(terms) == 2
            for name in names:
                answer = await pipeline.ask(name, "/metrics")
                assert answer is not None
                assert "flotilla_bus_forbidden_total{" not in answer.body, name
                assert value_of(answer.body, "flotilla_bus_connection_losses_total") == 0, name
            reader, permitter = (as_user(nats, tmp_path, user) for user in ("reader", "permitter"))
            assert "a/big" in await flotilla(reader, "queue")
            assert "a/big does not fit the only node: it lacks cpu" in await flotilla(reader, "explain", "a/big")
            assert "all is well" in await flotilla(reader, "status")
            await flotilla(reader, "dump", "--output", str(tmp_path / "dump"))
            assert "no pod is waiting for a permit (binders: 1)" in await flotilla(permitter, "permit", "list")
        assert "iolation" not in (nats.folder / "nats-server.log").read_text()
