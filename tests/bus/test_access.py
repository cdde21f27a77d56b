"""Who one is to NATS, and at which of several servers."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from shared.bus import Bus, NatsAccess
from shared.bus.access import read_url, where
from shared.config.settings import Settings
from shared.errors import ClusterError, UserError
from shared.messages.queue import Received, Take
from shared.tls import TlsFiles
from tests.bus.operator import Operator
from tests.bus.support import PREFIX, a_telemetry, until
from tests.bus.test_connection import a_free_port
from tests.servers import ConfiguredNats, configured_nats

pytestmark = pytest.mark.asyncio

PASSWORD = "p/s,s@w:rd"
QUOTED = "p%2Fs%2Cs%40w%3Ard"
ONE_USER = f'authorization {{ user: me, password: "{PASSWORD}" }}\n'


@asynccontextmanager
async def talking(url: str, credentials: Path | None = None) -> AsyncIterator[Bus]:
    access = NatsAccess(url=url, credentials=None if credentials is None else str(credentials))
    bus = await Bus.connect(access, PREFIX, "me", a_telemetry(), patience=10.0)
    try:
        yield bus
    finally:
        await bus.close()


async def answers(bus: Bus) -> bool:
    await bus.subscribe("queue.take", Take, lambda m, envelope: envelope.respond(Received(m.epoch, m.number)))
    return await bus.request("queue.take", Take(1, 2, 3), Received, timeout=5) == Received(1, 2)


def moved(bus: Bus, before: str) -> bool:
    """Whether it is connected, and no more to the server that it was connected to before."""
    return bus.connected and bus._connection.client.server != before


def at(*servers: ConfiguredNats, user: str = f"me:{QUOTED}@") -> str:
    return ",".join(f"nats://{user}{where(server.url)}" for server in servers)


# What settings and URLs say


async def test_settings_become_nats_access() -> None:
    settings = Settings(nats_url="tls://a", nats_ca="ca", nats_cert="cert", nats_key="key", nats_credentials="creds")
    access = NatsAccess(url="tls://a", files=TlsFiles("ca", "cert", "key"), credentials="creds")
    assert NatsAccess.of(settings) == access


async def test_a_url_names_servers_and_one_user() -> None:
    read = read_url("nats://me:p%40ss@one:1, nats://two,tls://me:p%40ss@[::1]:3")
    assert read.urls == ["nats://one:1", "nats://two:4222", "tls://[::1]:3"]
    assert (read.user, read.password, read.insists_on_tls) == ("me", "p@ss", True)
    assert read.where == "one:1,two:4222,[::1]:3"
    assert "p@ss" not in repr(read) + repr(NatsAccess(url="nats://me:p@ss@h"))
    token = read_url("nats://t%2Fken@one")
    assert (token.user, token.password) == ("t/ken", None)


@pytest.mark.parametrize(
    "url", ["nats://one,", "nats://a:b@one,http://two", "nats://one/x", "nats://one?tls=1", "nats://a:b/c@one", "x:0"]
)
async def test_an_invalid_nats_url_is_reported(url: str) -> None:
    with pytest.raises(UserError, match=r"^invalid NATS URL"):
        read_url(url)


async def test_several_users_are_reported_without_passwords() -> None:
    with pytest.raises(UserError, match="names several users") as error:
        read_url("nats://a:secret@one,nats://b:other@two")
    assert "secret" not in str(error.value)


# Users


async def test_a_password_and_a_token_with_odd_characters() -> None:
    async with configured_nats(ONE_USER) as server, talking(at(server)) as bus:
        assert await answers(bus)
    async with (
        configured_nats(f'authorization {{ token: "{PASSWORD}" }}\n') as server,
        talking(at(server, user=f"{QUOTED}@")) as bus,
    ):
        assert await answers(bus)


async def test_credentials_of_an_operator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    operator, stranger = Operator(), Operator()
    good, bad, old = tmp_path / "good.creds", tmp_path / "bad.creds", tmp_path / "old.creds"
    good.write_text(operator.credentials())
    bad.write_text(stranger.credentials())
    old.write_text(operator.credentials(seconds=-10))
    async with configured_nats(operator.admission) as server:
        async with talking(server.url, good) as bus:
            assert await answers(bus)
        for wrong in (bad, old, None):
            with pytest.raises(UserError, match=rf"^NATS at {where(server.url)} refuses the credentials$"):
                async with talking(server.url, wrong):
                    pass
    assert "SU" not in caplog.text


async def test_expired_credentials_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """First the server ends the connection, then it refuses the old file, then it takes the new one."""
    operator, file = Operator(), tmp_path / "user.creds"
    async with configured_nats(operator.admission) as server:
        file.write_text(operator.credentials(seconds=3))
        async with talking(server.url, file) as bus:
            await until(lambda: "refuses the credentials" in caplog.text)
            assert not bus.connected
            file.write_text("half writ")
            await until(lambda: "has no user JWT" in str(bus._connection._last))
            file.write_text(operator.credentials())
            await until(lambda: bus.connected)
            assert await answers(bus)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("", "it has no user JWT and seed"),
        ("\udcff", "it has no user JWT and seed"),
        ("SU", "its seed is not that of a user"),
        ("SA", "its seed is not that of a user"),
    ],
)
async def test_an_invalid_credentials_file_is_reported_at_once(tmp_path: Path, text: str | None, problem: str) -> None:
    file, good = tmp_path / "user.creds", Operator().credentials()
    if text in ("SU", "SA"):
        before, _, seed = good.partition("\nSU")
        misspelt = seed[:20] + ("B" if seed[20] == "A" else "A") + seed[21:]
        text = f"{before}\n{text}{misspelt if text == 'SU' else seed}"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=problem) as error:
        async with talking("nats://127.0.0.1:1", file):
            pass
    assert str(file) in str(error.value)


# Several servers


async def test_an_unreachable_server_is_skipped() -> None:
    async with configured_nats(ONE_USER) as one, configured_nats(ONE_USER) as two:
        async with talking(f"{at(one)},{at(two, user='')}") as bus:
            client = bus._connection.client
            for _ in range(2):
                at_first = client.server
                lost = one if at_first == where(one.url) else two
                await lost.kill()
                await until(partial(moved, bus, at_first))
                assert await answers(bus)
                await lost.start()
        url = f"nats://me:{QUOTED}@127.0.0.1:{a_free_port()},{at(two)}"
        async with talking(url) as bus:
            assert bus.connected


async def test_a_discovered_server_is_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ports = a_free_port(), a_free_port()
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    admissions = [
        f'{ONE_USER}cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n' for port in ports
    ]
    async with (
        configured_nats(admissions[0]) as one,
        configured_nats(admissions[1]) as two,
        talking(at(one)) as bus,
    ):
        client = bus._connection.client
        await until(lambda: len(client._server_pool) == 2)
        assert {each.uri.netloc for each in client._server_pool} == {where(one.url), where(two.url)}
        await one.kill()
        await until(partial(moved, bus, where(one.url)))
        assert await answers(bus)
    assert f"NATS at {where(two.url)} is back" in caplog.text


async def test_one_refusing_server_of_several_is_no_reason_to_give_up() -> None:
    other = 'authorization { user: other, password: "x" }\n'
    async with configured_nats(ONE_USER) as one, configured_nats(other) as two:
        async with talking(at(one, two)) as bus:
            assert bus._connection.client.server == where(one.url)
        two.admission = 'authorization { user: another, password: "x" }\n'
        one.admission = other
        await one.stop()
        await one.start()
        told = rf"^NATS at {where(at(one, two))} refuses the credentials$"
        with pytest.raises(UserError, match=told):
            async with talking(at(one, two)):
                pass


async def test_an_unreachable_cluster_is_reported_with_all_servers() -> None:
    ports = a_free_port(), a_free_port()
    names = ",".join(f"127.0.0.1:{port}" for port in ports)
    url = ",".join(f"nats://me:secret@127.0.0.1:{port}" for port in ports)
    with pytest.raises(ClusterError, match=rf"^NATS at {names} cannot be reached: Connection refused$"):
        await Bus.connect(url, PREFIX, "me", a_telemetry(), patience=0.3)


# What it has to let through


async def test_a_small_max_payload_is_reported_at_once() -> None:
    async with configured_nats("max_payload: 1048576\n") as server:
        with pytest.raises(UserError) as error:
            await Bus.connect(server.url, PREFIX, "me", a_telemetry())
    assert str(error.value) == (
        f"NATS at {where(server.url)} takes messages of 1,048,576 bytes only: its max_payload must be at least 8388608"
    )
