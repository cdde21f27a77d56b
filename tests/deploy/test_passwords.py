"""deploy/passwords.py: what it draws is what the servers understand and the services use."""

import asyncio
import json
import re
import stat
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError

from services.supervisor.servers import accepts, end, find, redis_executable
from shared.config.sources import settings_from
from tests.deploy.rendering import K8S, NAMESPACE, ROOT

SCRIPT = ROOT / "deploy" / "passwords.py"
FILES = {"nats-url", "nats-users", "redis-url", "valkey-users"}
PATIENCE, POLL = 10.0, 0.02
ONCE = Retry(NoBackoff(), 0)
USER = re.compile(r"ACL SETUSER flotilla .*")


def draw(folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, "compose", "--folder", folder], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"written: {folder}\n", "and no password"
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_are_for_containers_and_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    drawn = draw(folder)
    assert drawn.keys() == FILES
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    again = subprocess.run([sys.executable, SCRIPT, "compose", "--folder", folder], capture_output=True, text=True)
    assert again.returncode == 1 and "is there already" in again.stderr
    assert {path.name: path.read_text() for path in folder.iterdir()} == drawn
    assert draw(tmp_path / "others") != drawn


def test_settings_take_the_urls(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    draw(folder)
    settings = settings_from(
        {"FLOTILLA_NATS_URL_FILE": str(folder / "nats-url"), "FLOTILLA_REDIS_URL_FILE": str(folder / "redis-url")}
    )
    assert settings.nats_url.endswith("@nats:4222")
    assert settings.redis_url.endswith("@valkey:6379/0")


def test_nats_takes_its_users(tmp_path: Path) -> None:
    drawn = draw(tmp_path / "secrets")
    (tmp_path / "nats.conf").write_text((K8S / "servers" / "nats.conf").read_text())
    (tmp_path / "users.conf").write_text(drawn["nats-users"])
    server = find("nats-server", Path(sysconfig.get_path("scripts")) / "nats-server")
    done = subprocess.run([server, "-t", "--config", tmp_path / "nats.conf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@asynccontextmanager
async def valkey(folder: Path, users: str) -> AsyncIterator[str]:
    """A server with the configuration and the users that it has in a cluster, on a socket; its path."""
    (folder / "users.acl").write_text(users)
    path = folder / "redis.sock"
    config = folder / "valkey.conf"
    config.write_text((K8S / "servers" / "valkey.conf").read_text().replace("dir /data", f"dir {folder}"))
    here = ("--port", "0", "--unixsocket", path, "--aclfile", folder / "users.acl")
    server = await asyncio.create_subprocess_exec(
        redis_executable(),
        config,
        *here,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not accepts(path):
                assert server.returncode is None, "it has ended"
                await asyncio.sleep(POLL)
        yield str(path)
    finally:
        await end(server)
        await server.communicate()


@pytest.mark.asyncio
async def test_redis_takes_its_users_who_may_do_what_is_needed(tmp_path: Path) -> None:
    drawn = draw(tmp_path / "secrets")
    password = drawn["redis-url"].partition("flotilla:")[2].partition("@")[0]
    async with valkey(tmp_path, drawn["valkey-users"]) as path:
        ours = redis.asyncio.Redis(unix_socket_path=path, username="flotilla", password=password)
        async with ours:
            await ours.hset("flotilla:meta", "a", "1")
            for forbidden in (ours.hset("other:meta", "a", "1"), ours.flushall(), ours.config_get("*")):
                with pytest.raises(NoPermissionError):
                    await forbidden
        async with redis.asyncio.Redis(unix_socket_path=path) as nobody:
            assert await nobody.ping()
            with pytest.raises(NoPermissionError):
                await nobody.get("flotilla:meta")
        with pytest.raises(RedisError, match="invalid username-password"):
            async with redis.asyncio.Redis(
                unix_socket_path=path, username="flotilla", password="wrong", retry=ONCE
            ) as wrong:
                await wrong.ping()


def test_commands_are_those_of_the_docs() -> None:
    documented = USER.search((ROOT / "docs" / "redis.md").read_text())
    assert documented is not None
    users = json.loads(manifests())["items"][3]["stringData"]["users.acl"]
    ours = users.partition("user flotilla")[2]
    assert set(re.findall(r"\+(\w+)", ours)) == set(re.findall(r"\+(\w+)", documented[0]))


def manifests() -> str:
    return subprocess.run([sys.executable, SCRIPT, "kubernetes"], capture_output=True, text=True, check=True).stdout


def test_manifests_are_the_secrets_that_are_mounted() -> None:
    items = {item["metadata"]["name"]: item for item in json.loads(manifests())["items"]}
    assert {name: set(item["stringData"]) for name, item in items.items()} == {
        "flotilla-nats": {"url"},
        "flotilla-redis": {"url"},
        "nats-users": {"users.conf"},
        "valkey-users": {"users.acl"},
    }
    assert all(item["metadata"]["namespace"] == NAMESPACE for item in items.values())
