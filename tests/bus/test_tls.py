"""NATS over TLS: which servers are accepted, and the errors about others. Servers and certificates are real."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.bus import Bus, NatsAccess
from shared.errors import UserError
from shared.messages.queue import Received, Take
from shared.tls import TlsFiles
from tests.bus.support import PREFIX, a_telemetry, until
from tests.certificates import files, make_certificates
from tests.servers import ConfiguredNats, configured_nats
from tools.supervisor.servers import temporary_folder

pytestmark = pytest.mark.asyncio

SECRET = "hunter2"
USER = f"me:{SECRET}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made)
    yield made


def demanding(folder: Path, shows: str = "server", more: str = "") -> str:
    """A server that takes TLS only, and a user's password."""
    shown = f'cert_file: "{folder}/{shows}.pem", key_file: "{folder}/{shows}.key"'
    return f'tls {{ {shown}, {more} }}\nauthorization {{ user: me, password: "{SECRET}" }}\n'


def verifying(folder: Path) -> str:
    return demanding(folder, more=f'ca_file: "{folder}/ca.pem", verify: true')


def secured(server: ConfiguredNats, scheme: str = "tls") -> str:
    return server.as_user(USER).replace("nats://", f"{scheme}://")


async def connect(url: str, tls: TlsFiles, patience: float = 10.0) -> Bus:
    return await Bus.connect(NatsAccess(url=url, files=tls), PREFIX, "me", a_telemetry(), patience=patience)


async def answers(bus: Bus) -> bool:
    await bus.subscribe("queue.take", Take, lambda m, envelope: envelope.respond(Received(m.epoch, m.number)))
    return await bus.request("queue.take", Take(1, 2, 3), Received, timeout=5) == Received(1, 2)


async def refused(url: str, tls: TlsFiles) -> str:
    """The error about what the user has to correct, after the name of the server.

    Patience that runs out would be a ClusterError.
    """
    with pytest.raises(UserError) as error:
        await connect(url, tls, patience=30)
    said = str(error.value)
    assert SECRET not in said and "\n" not in said
    return said.removeprefix(f"NATS at {url.rpartition('@')[2]}")


@asynccontextmanager
async def talking(url: str, tls: TlsFiles) -> AsyncIterator[Bus]:
    bus = await connect(url, tls)
    try:
        yield bus
    finally:
        await bus.close()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_that_requires_tls(folder: Path, scheme: str) -> None:
    async with (
        configured_nats(demanding(folder)) as server,
        talking(secured(server, scheme), files(folder)) as bus,
    ):
        assert await answers(bus)
        by_name = secured(server, scheme).replace("127.0.0.1", "localhost")
        async with talking(by_name, files(folder)) as other:
            assert other.connected


@pytest.mark.parametrize(
    ("shows", "ca", "problem"),
    [
        ("server", "stranger", ": its certificate is not signed by those in {folder}/stranger.pem"),
        ("stranger", "ca", ": its certificate is not signed by those in {folder}/ca.pem"),
        ("other", "ca", ": its certificate is for another host"),
        ("expired", "ca", ": its certificate has expired"),
    ],
)
async def test_an_untrusted_server_is_reported_at_once(folder: Path, shows: str, ca: str, problem: str) -> None:
    async with configured_nats(demanding(folder, shows)) as server:
        for scheme in ("tls", "nats"):
            assert await refused(secured(server, scheme), files(folder, ca)) == problem.format(folder=folder)


async def test_without_an_authority_the_systems_are_used(folder: Path) -> None:
    async with configured_nats(demanding(folder)) as server:
        told = await refused(secured(server), TlsFiles())
        assert told == ": its certificate is not signed by an authority that the system trusts"


async def test_with_required_tls_a_server_without_it_learns_no_password(folder: Path) -> None:
    heard = bytearray()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":8388608,"auth_required":true}\r\n')
        heard.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(pretend, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        assert await refused(f"tls://{USER}@127.0.0.1:{port}", files(folder)) == ": the server does not support TLS"
    assert not heard


async def test_required_tls_with_a_server_that_offers_it(folder: Path) -> None:
    async with configured_nats(demanding(folder) + "allow_non_tls: true\n") as server:
        assert await refused(secured(server), files(folder, "stranger")) != ""
        async with talking(secured(server), files(folder)) as bus:
            assert await answers(bus)


async def test_a_server_that_requires_a_client_certificate(folder: Path) -> None:
    async with configured_nats(verifying(folder)) as server:
        async with talking(secured(server), files(folder, own="client")) as bus:
            assert await answers(bus)
        assert await refused(secured(server), files(folder)) == ": it asks for a certificate of ours"
        unknown = await refused(secured(server), files(folder, own="stranger"))
        assert unknown in (": it does not know who signed our certificate", ": it does not accept our certificate")
        assert await refused(secured(server), files(folder, own="expired")) in (
            ": it says that our certificate has expired",
            ": it does not accept our certificate",
        )


async def test_a_wrong_password_is_reported_over_tls(folder: Path) -> None:
    async with configured_nats(demanding(folder)) as server:
        url = secured(server).replace(SECRET, "wrong")
        assert await refused(url, files(folder)) == " refuses the credentials"


async def test_rotated_certificates_are_used_at_the_next_connection(folder: Path) -> None:
    """Authority, server and client all have new ones; the process that talks to NATS is the same."""
    async with temporary_folder() as live:
        shutil.copytree(folder, live, dirs_exist_ok=True)
        async with (
            configured_nats(verifying(live)) as server,
            talking(secured(server), files(live, own="client")) as bus,
        ):
            await server.kill()
            await until(lambda: not bus.connected)
            make_certificates(live)
            await server.start()
            await until(lambda: bus.connected)
            assert await answers(bus)


async def test_missing_files_at_a_reconnect_are_retried(folder: Path) -> None:
    async with temporary_folder() as live:
        shutil.copytree(folder, live, dirs_exist_ok=True)
        async with (
            configured_nats(demanding(folder)) as server,
            talking(secured(server), files(live)) as bus,
        ):
            await server.kill()
            (live / "ca.pem").unlink()
            await server.start()
            await until(lambda: "ca.pem" in str(bus._connection._last))
            assert not bus.connected
            shutil.copy(folder / "ca.pem", live / "ca.pem")
            await until(lambda: bus.connected)


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        (("gone.pem", None, None), r"gone\.pem: No such file or directory"),
        (("ca.key", None, None), r"ca\.key: not certificates of authorities"),
        (("ca.pem", "gone.pem", "client.key"), r"gone\.pem, .*client\.key: No such file or directory"),
        (("ca.pem", "client.pem", "server.key"), r"client\.pem, .*: not a certificate and its key, without a password"),
        (("ca.pem", "client.pem", None), r"client\.pem: not a certificate and its key, without a password"),
        (("ca.pem", None, "client.key"), r"client\.key: a key without its certificate"),
    ],
)
async def test_unusable_files_are_reported_at_once(
    folder: Path, tls: tuple[str | None, str | None, str | None], problem: str
) -> None:
    named = TlsFiles(*(None if name is None else str(folder / name) for name in tls))
    with pytest.raises(UserError, match=problem):
        await connect("tls://127.0.0.1:1", named)
