"""Redis over TLS. The server is real; what ends TLS in front of it stands here, for not every Redis has TLS."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from shared.errors import UserError
from shared.store.errors import StoreUnreachable
from shared.store.link import connect
from tests.certificates import make_certificates
from tests.servers import configured_redis, redis_server, sentinel
from tests.store.support import LOG, linked_to, relay
from tools.supervisor.servers import temporary_folder

pytestmark = pytest.mark.asyncio

SECRET = "hunter2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made)
    yield made


class TlsFront:
    """Takes TLS on a port, and carries what is within to and from another one."""

    def __init__(self, target: int, context: ssl.SSLContext) -> None:
        self._target = target
        self.context = context
        self.port = 0
        self._carrying: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TlsFront"]:
        async with await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.context) as listening:
            self.port = listening.sockets[0].getsockname()[1]
            try:
                yield self
            finally:
                for task in self._carrying:
                    task.cancel()
                await asyncio.gather(*self._carrying, return_exceptions=True)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(client, to_client))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(client, to_server))
                both.create_task(_copy(server, to_client))
        except* OSError:
            pass
        finally:
            for writer in (to_client, to_server):
                writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    raise ConnectionResetError


def server_context(folder: Path, shows: str = "server", *, verify: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / f"{shows}.pem", folder / f"{shows}.key")
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    return context


@asynccontextmanager
async def tls_redis(folder: Path, shows: str = "server", *, verify: bool = False) -> AsyncIterator[TlsFront]:
    async with (
        configured_redis() as server,
        TlsFront(server.port, server_context(folder, shows, verify=verify)).running() as front,
    ):
        yield front


def url(front: TlsFront, folder: Path, ca: str = "ca", own: str = "") -> str:
    shown = f"&ssl_certfile={folder}/{own}.pem&ssl_keyfile={folder}/{own}.key" if own else ""
    return f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={folder}/{ca}.pem{shown}"


async def told(url: str, front: TlsFront) -> str:
    """What follows the server's name. Patience that runs out would be no UserError."""
    with pytest.raises(UserError) as error:
        await connect(url.replace("rediss://", f"rediss://:{SECRET}@"), LOG)
    assert SECRET not in str(error.value)
    return str(error.value).removeprefix(f"Redis at 127.0.0.1:{front.port} cannot be reached: ")


async def test_a_server_that_is_trusted(folder: Path) -> None:
    async with tls_redis(folder) as front, linked_to(url(front, folder)) as link:
        assert await link.call("ECHO", "here") == b"here"


async def test_a_server_that_requires_a_client_certificate_of_redis_clients(folder: Path) -> None:
    async with tls_redis(folder, verify=True) as front:
        async with linked_to(url(front, folder, own="client")) as link:
            assert await link.call("ECHO", "here") == b"here"
        for own in ("", "stranger"):
            with pytest.raises(StoreUnreachable, match=f"^Redis at 127.0.0.1:{front.port} "):
                await connect(url(front, folder, own=own), LOG, 0.3)


@pytest.mark.parametrize(
    ("shows", "ca", "problem"),
    [
        ("server", "stranger", "its certificate is not signed by those in {folder}/stranger.pem"),
        ("other", "ca", "its certificate is for another host"),
        ("expired", "ca", "its certificate has expired"),
    ],
)
async def test_a_server_that_is_not_trusted(folder: Path, shows: str, ca: str, problem: str) -> None:
    async with tls_redis(folder, shows) as front:
        assert await told(url(front, folder, ca), front) == problem.format(folder=folder)


async def test_named_authorities_replace_the_systems(folder: Path) -> None:
    async with tls_redis(folder) as front:
        line = await told(f"rediss://127.0.0.1:{front.port}", front)
        assert line == "its certificate is not signed by an authority that the system trusts"


async def test_verification_cannot_be_switched_off(folder: Path) -> None:
    for option in ("ssl_cert_reqs=none", "ssl_check_hostname=false"):
        with pytest.raises(UserError, match="only the options"):
            await connect(f"rediss://127.0.0.1:1?{option}", LOG)


async def test_unusable_files_are_reported_at_once(folder: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.pem: No such file or directory"):
        await connect(f"rediss://127.0.0.1:1?ssl_ca_certs={folder}/gone.pem", LOG)


async def test_a_server_without_tls_is_reported(folder: Path) -> None:
    """It is sent no password in clear."""
    async with redis_server() as server, relay(server) as between:
        with pytest.raises((UserError, StoreUnreachable), match=f"Redis at 127.0.0.1:{between.port} "):
            await connect(f"rediss://:{SECRET}@127.0.0.1:{between.port}?ssl_ca_certs={folder}/ca.pem", LOG, 0.3)


async def test_rotated_certificates_are_used_for_the_next_connection(folder: Path) -> None:
    async with temporary_folder() as live, configured_redis() as server:
        shutil.copytree(folder, live, dirs_exist_ok=True)
        front = TlsFront(server.port, server_context(live, verify=True))
        async with front.running():
            link = await connect(url(front, live, own="client"), LOG)
        try:
            make_certificates(live)
            front.context = server_context(live, verify=True)
            async with front.running():
                with suppress(StoreUnreachable):  # the connection before is found to be gone
                    await link.call("PING")
                assert await link.call("ECHO", "here") == b"here"
        finally:
            await link.close()


async def test_sentinels_and_master_over_tls(folder: Path) -> None:
    """The sentinel knows the master by the port that takes TLS."""
    async with (
        configured_redis() as master,
        TlsFront(master.port, server_context(folder)).running() as front,
        sentinel(front.port) as asked,
        TlsFront(asked.port, server_context(folder)).running() as asking,
        linked_to(f"rediss+sentinel://127.0.0.1:{asking.port}/main?ssl_ca_certs={folder}/ca.pem") as link,
    ):
        assert await link.call("ECHO", "here") == b"here"
