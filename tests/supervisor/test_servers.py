"""The embedded servers."""

import socket
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from shared.errors import UserError
from tests.servers import nats_server, redis_server
from tools.supervisor.servers import NatsServer, listens, temporary_folder

pytestmark = pytest.mark.asyncio


async def test_nats_restarts_under_the_same_url() -> None:
    async with nats_server() as server:
        url = server.url
        await server.kill()
        await server.start()
        assert server.url == url
        assert listens(urlsplit(url).port or 0)


async def test_a_port_in_use_is_reported_and_no_process_is_left() -> None:
    before = psutil.Process().children()
    async with temporary_folder() as folder:
        server = NatsServer(folder)
        await server.start()
        port = urlsplit(server.url).port or 0
        await server.kill()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            with pytest.raises(UserError, match=r"nats-server does not start: .*address already in use"):
                await server.start()
        assert psutil.Process().children() == before


async def test_passwords_are_only_in_files_that_only_the_owner_can_read() -> None:
    async with nats_server() as nats, redis_server() as redis:
        password = urlsplit(nats.url).password or "missing"
        for server in (nats, redis):
            assert server.process is not None
            assert password not in " ".join(psutil.Process(server.process.pid).cmdline())
            assert all(path.stat().st_mode & 0o077 == 0 for path in server.folder.glob("*.conf"))
            assert server.folder.stat().st_mode & 0o077 == 0


async def test_the_temporary_folder_is_removed() -> None:
    async with temporary_folder() as folder:
        (folder / "file").touch()
    assert not folder.exists()


async def test_a_folder_that_cannot_be_made_or_holds_no_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    for folder, why in ((tmp_path / "none", "No such file or directory"), (deep, "too long for a socket")):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with pytest.raises(UserError, match=f"{why}.*set TMPDIR"):
            async with temporary_folder():
                pass
    assert list(deep.iterdir()) == []
