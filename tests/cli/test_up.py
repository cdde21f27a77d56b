"""flotilla up and flotilla simulate, as they are used."""

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.cli.commands import flotilla
from tests.supervisor.waiting import alive, until

pytestmark = pytest.mark.asyncio


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_up_prints_addresses_as_json_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    async with flotilla(tmp_path, "up", "--workers", "1", "--log-format", "json") as command:
        look = await command.prints(lambda line: "  variables: KUBECONFIG=" in line)
        assert not [line for line in command.lines if "ready in" in line]  # other commands work before that
        await command.prints(lambda line: "  binder-0  " in line)
        api = await command.prints(lambda line: "  api server  " in line)
        page = await command.prints(lambda line: "console: http://127.0.0.1:" in line)
        async with aiohttp.ClientSession() as session, session.get(json.loads(page)["message"].split()[-1]) as answer:
            assert "Flotilla" in await answer.text()
        said = [json.loads(line) for line in command.lines]
        ours = [entry["message"].split()[0] for entry in said if entry["service"] == "flotilla"]
        slow = "waiting"  # what is waited for is said on a slow machine
        assert [word for word in ours if word != slow] == [
            "nats", "redis", "api", "variables:", "ready", "core", "worker-0", "binder-0", "console:",
        ]  # fmt: skip
        variables = dict(word.split("=") for word in shlex.split(json.loads(look)["message"]) if "=" in word)
        assert json.loads(Path(variables["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]["server"] in api
        secret = Path(variables["FLOTILLA_NATS_URL_FILE"])
        assert secret.stat().st_mode & 0o777 == 0o600
        assert not [line for line in command.lines if secret.read_text() in line]
        family = command.family()
        assert len(family) == 8  # the services, the servers, the console, and what the services are forks of
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 0
        assert left_in(tmp_path) == []
        assert not [process for process in family if alive(process.pid)]


@pytest.mark.parametrize(("children", "sent", "code"), [(1, signal.SIGINT, 130), (6, signal.SIGTERM, 143)])
async def test_a_signal_during_the_start_leaves_nothing_behind(
    children: int, sent: signal.Signals, code: int, tmp_path: Path
) -> None:
    async with flotilla(tmp_path, "up") as command:
        await until(lambda: len(command.family()) >= children)
        family = command.family()
        command.process.send_signal(sent)
        assert await command.ends() == code
        assert left_in(tmp_path) == []
        assert not [process for process in family if alive(process.pid)]


async def test_no_process_outlives_a_killed_up(tmp_path: Path) -> None:
    async with flotilla(tmp_path, "up", "--workers", "1") as command:
        await until(lambda: len(command.family()) >= 7)
        family = command.family()
        command.process.kill()
        await until(lambda: not [process for process in family if alive(process.pid)])
        await until(lambda: not [path for path in tmp_path.iterdir() if path.is_dir()])  # it holds passwords


async def test_the_next_up_removes_the_folder_of_a_killed_one(tmp_path: Path) -> None:
    async with flotilla(tmp_path, "up", "--workers", "1") as command:
        await until(lambda: len(command.family()) >= 7)
        family = command.family()
        fork_server = next(each for each in family if "fork server" in " ".join(each.cmdline()))
        fork_server.kill()  # it would remove the folder
        command.process.kill()
        await until(lambda: not [process for process in family if alive(process.pid)])
    left = {path for path in tmp_path.iterdir() if path.is_dir()}
    assert left
    async with flotilla(tmp_path, "up", "--workers", "1") as command:
        await until(lambda: not any(path.exists() for path in left))
        command.process.send_signal(signal.SIGINT)
        await command.ends()


async def test_a_bad_configuration_stops_up_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("profiles: 7\n")
    async with flotilla(tmp_path, "up", "--config", str(config)) as command:
        assert await command.ends() == 2
        assert command.lines
        assert all(line.startswith(f"flotilla: {config}: ") for line in command.lines)
        assert left_in(tmp_path) == ["scheduler.yaml"]


async def test_a_bad_kubeconfig_stops_up_before_anything_starts(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("contexts: 7\n")
    async with flotilla(tmp_path, "up", "--kubeconfig", str(kubeconfig)) as command:
        assert await command.ends() == 2
        (line,) = command.lines
        assert line.startswith(f"flotilla: {kubeconfig}: ")


async def test_ignored_settings_and_the_source_of_a_dead_nats_url_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "nats.url"
    url.write_text("nats://127.0.0.1:1")
    monkeypatch.setenv("FLOTILLA_NATS_URL_FILE", str(url))
    monkeypatch.setenv("FLOTILLA_HTTP_PORT", "8080")
    async with flotilla(tmp_path, "up", "--workers", "1") as command:
        said = await command.prints(lambda line: line.startswith("flotilla: "))
        assert said.startswith("flotilla: FLOTILLA_HTTP_PORT: ignored, ")
        command.process.send_signal(signal.SIGINT)
        await command.ends()
    async with flotilla(tmp_path, "queue") as command:
        assert await command.ends() == 1
        assert "(the URL comes from FLOTILLA_NATS_URL_FILE" in command.lines[-1]


async def test_a_second_pipeline_on_a_nats_that_has_one_is_refused_before_it_starts_a_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flotilla(tmp_path, "up", "--workers", "1", "--no-console", "--log-format", "text") as first:
        look = await first.prints(lambda line: "FLOTILLA_NATS_URL_FILE=" in line)
        await first.prints(lambda line: "ready in" in line)
        url = next(word.split("=")[1] for word in shlex.split(look) if word.startswith("FLOTILLA_NATS_URL_FILE="))
        monkeypatch.setenv("FLOTILLA_NATS_URL_FILE", url)
        async with flotilla(tmp_path, "up", "--grouping", "pairs", "--no-console") as second:
            assert await second.ends() == 2
        (refusal,) = second.lines
        assert "has a pipeline (core-watcher, core-queue, core-snapshot, core-cycle, 2 more)" in refusal
        assert "for another cluster, unset FLOTILLA_NATS_URL_FILE (" in refusal


async def test_simulate_prints_its_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with flotilla(tmp_path, "simulate", "--token-file", str(tmp_path / "token")) as command:
        url = (await command.prints(lambda line: line.startswith("simulated API server at "))).split()[-1]
        hint = await command.prints(lambda line: "curl" in line)
        assert hint == f'try: curl -H "Authorization: Bearer $(cat {tmp_path}/token)" {url}/api/v1/nodes'
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/api/v1/nodes") as response:
                assert response.status == 401
            async with session.get(f"{url}/api/v1/nodes", headers={"Authorization": "Bearer secret"}) as response:
                assert response.status == 200
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 0
        assert len(command.lines) == 2


@pytest.mark.parametrize(
    ("release", "versions"), [("1.36", ["v1", "v1alpha2"]), ("1.37", ["v1", "v1beta1", "v1alpha3"])]
)
async def test_simulate_serves_the_pod_groups_of_a_release(tmp_path: Path, release: str, versions: list[str]) -> None:
    async with flotilla(tmp_path, "simulate", "--kubernetes", release) as command:
        url = (await command.prints(lambda line: line.startswith("simulated API server at "))).split()[-1]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/apis") as response:
            groups = {each["name"]: each["versions"] for each in (await response.json())["groups"]}
        assert [each["version"] for each in groups["scheduling.k8s.io"]] == versions
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 0


async def test_one_cause_is_one_line_and_what_is_waited_for_is_said(tmp_path: Path) -> None:
    """Queue and snapshot in one process, and two workers, miss Redis."""
    away = "Redis at 127.0.0.1:1 cannot be reached: Connection refused"
    arguments = ("--redis", "redis://127.0.0.1:1/0", "--log-format", "text", "--no-console", "--workers", "2")
    async with flotilla(tmp_path, "up", *arguments) as command:
        others = await command.prints(lambda line: "WARNING the same at " in line and away in line)
        waiting = await command.prints(lambda line: "WARNING waiting for " in line and away in line)
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 130
    assert re.match(r"flotilla +\| \d\d:\d\d:\d\d\.\d{3} WARNING ", others)
    assert f"redis: {away}" in waiting
    before = command.lines[: command.lines.index(others)]
    assert sum(away in line and "trying again" in line for line in before) == 1


async def test_a_terminal_has_a_status_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tools.cli.main", "up", "--workers", "1", "--no-console"),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    os.close(theirs)
    said = bytearray()

    def read() -> None:
        try:
            said.extend(os.read(ours, 65_536))
        except OSError:  # no process has the other end any more
            asyncio.get_running_loop().remove_reader(ours)

    asyncio.get_running_loop().add_reader(ours, read)
    try:
        await until(lambda: b"pods: 0 pending, 0 bound, 0 pods/s" in said)
        await until(lambda: b"ready in" in said)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 20.0) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
    assert b"\r\x1b[K" in said
    assert b'"message"' not in said  # a terminal gets text, also in a container
