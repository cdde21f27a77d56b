"""The recorder on NATS: it asks the cycle again and again, and what it hears can be read from its files."""

import asyncio
from pathlib import Path

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen
from shared.bus import Bus
from shared.bus.subjects import CYCLE_DECISIONS, CYCLE_RECORD
from shared.config.settings import Settings
from shared.errors import ClusterError, UserError
from shared.messages.evaluation import Ties
from shared.messages.recording import DeciderShown, RecordDecisions, RoundDecided
from shared.messages.state import Delta, State
from testing.builders import node
from tests.bus.support import PREFIX, a_bus, until
from tests.servers import nats_server
from tests.whatif.support import a_pipeline
from tools.cli.service_client import ServiceClient
from tools.recording.file import Entry, Header, RecordingReader
from tools.recording.recorder import Files, Recorder

DECIDER = DeciderShown(7, "cycle", 1, "1.0", 256, Ties())


def entries(path: Path) -> list[Entry]:
    reader = RecordingReader(path)
    read = list(reader.entries())
    assert reader.damage == []
    return read


async def a_cycle(bus: Bus) -> asyncio.Queue[RecordDecisions]:
    asked: asyncio.Queue[RecordDecisions] = asyncio.Queue()
    await bus.subscribe(CYCLE_RECORD, RecordDecisions, lambda request, _: asked.put_nowait(request))
    return asked


@pytest.mark.asyncio
async def test_files_rotate_and_each_begins_with_the_state(tmp_path: Path) -> None:
    core = SnapshotCore(1)
    core.handle(NodeSeen(node("first").capacity(cpu=1).build()), 0.0)
    path = tmp_path / "r"
    async with a_pipeline(core) as (nats, snapshot), a_bus(nats) as bus, a_bus(nats) as cycle:
        asked = await a_cycle(cycle)
        files = Files(path, 2_000, 2, Header("1.0", 0.0))
        recorder = Recorder(ServiceClient(bus, Settings(prefix=PREFIX, nats_url=nats.url)), files)
        recording = asyncio.create_task(recorder.run())
        request = await asyncio.wait_for(asked.get(), 10)
        assert request.seconds > 10
        cycle.post(CYCLE_DECISIONS, DECIDER)
        number = 1

        async def go_on() -> None:
            nonlocal number
            number += 1
            await snapshot.handle(NodeSeen(node(f"node-{number}").label(text="x" * 40 * number).build()))
            cycle.post(CYCLE_DECISIONS, RoundDecided(7, "cycle", number, number, [], [], []))
            files.flush()

        while not (tmp_path / "r.2").exists():
            await go_on()
            await asyncio.sleep(0)
        await until(lambda: recorder.rounds == number - 1)
        recording.cancel()
        await asyncio.wait([recording])
    assert recorder.core.gaps == 0
    assert not (tmp_path / "r.3").exists()
    rounds: list[int] = []
    for name in ("r.2", "r.1", "r"):
        header, *rest = entries(tmp_path / name)
        assert isinstance(header, Header)
        first = next(each for each in rest if isinstance(each, State))
        deltas = [each.seq for each in rest if isinstance(each, Delta) and each.seq > first.seq]
        assert deltas == list(range(first.seq + 1, first.seq + 1 + len(deltas)))
        rounds += [each.round for each in rest if isinstance(each, RoundDecided)]
        assert any(isinstance(each, DeciderShown) for each in rest)
    assert rounds == list(range(rounds[0], number + 1))


@pytest.mark.asyncio
async def test_it_ends_at_its_size(tmp_path: Path) -> None:
    core = SnapshotCore(1)
    core.handle(NodeSeen(node("first").capacity(cpu=1).build()), 0.0)
    async with a_pipeline(core) as (nats, _), a_bus(nats) as bus, a_bus(nats) as cycle:
        asked = await a_cycle(cycle)
        files = Files(tmp_path / "r", 1, 0, Header("1.0", 0.0))
        recorder = Recorder(ServiceClient(bus, Settings(prefix=PREFIX, nats_url=nats.url)), files)
        recording = asyncio.create_task(recorder.run())
        await asyncio.wait_for(recording, 10)
        assert recorder.is_full
        assert asked.empty()
    assert isinstance(entries(tmp_path / "r")[0], Header)


@pytest.mark.asyncio
async def test_nothing_is_left_of_a_recording_that_cannot_begin(tmp_path: Path) -> None:
    async with nats_server() as nats, a_bus(nats) as bus:
        files = Files(tmp_path / "r", 2_000, 0, Header("1.0", 0.0))
        recorder = Recorder(ServiceClient(bus, Settings(prefix=PREFIX, nats_url=nats.url)), files)
        with pytest.raises(ClusterError, match=r"workers: no listener .* flotilla status says which"):
            await asyncio.wait_for(recorder.run(), 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_a_full_disk_ends_it_with_the_reason() -> None:
    async with a_pipeline(SnapshotCore(1)) as (nats, _), a_bus(nats) as bus:
        files = Files(Path("/dev/full"), 1 << 20, 0, Header("1.0", 0.0), force=True)
        recorder = Recorder(ServiceClient(bus, Settings(prefix=PREFIX, nats_url=nats.url)), files)
        with pytest.raises(UserError, match="--output: cannot write /dev/full: No space left on device"):
            await asyncio.wait_for(recorder.run(), 10)


def test_a_file_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("of value")
    with pytest.raises(UserError, match="r exists: choose another name, or overwrite it with --force"):
        Files(path, 2_000, 0, Header("1.0", 0.0))
    assert path.read_text() == "of value"
    Files(path, 2_000, 0, Header("1.0", 0.0), force=True).close()
    assert entries(path) == [Header("1.0", 0.0)]
