"""The live state over NATS: whole and of one moment, while the snapshot goes on."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeGone, NodeSeen, ObjectSeen, PodDeleted, PodSeen
from shared.config.document import ConfigSource, without_secrets
from shared.config.settings import Settings
from shared.errors import ClusterError, UserError
from shared.messages.inspection import ConfigurationRead, DescribedPod
from shared.messages.state import Delta, Heartbeat, State
from shared.model.base import LAST_APPLIED
from shared.model.objects import GROUP_LABEL, GroupApi, ObjectKind, encode_msgpack, object_from, pod_from_msgpack
from testing.builders import node, pod
from tests.bus.support import PREFIX, a_bus
from tests.servers import nats_server
from tests.store.support import plain
from tests.whatif.support import a_pipeline
from tools import live_state
from tools.cli.service_client import ServiceClient
from tools.live_state import Follower, Gap, LiveGroup
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio


def a_waiting(name: str) -> DescribedPod:
    body = encode_msgpack(pod(name, "shop").label({GROUP_LABEL: f"group-of-{name}"}).build())
    return DescribedPod(f"uid-{name}", "shop", name, "default-scheduler", "active", 0.0, 0.0, 0.0, body=body)


def same(left: State, right: State) -> bool:
    def rest(state: State) -> object:
        nominated = {(each.uid, each.node, each.key) for each in state.nominations}
        objects = sorted(map(repr, state.objects))
        return state.epoch, state.seq, nominated, objects, state.shared_hostnames

    return plain(left) == plain(right) and rest(left) == rest(right)


async def load(nats: NatsServer) -> live_state.LiveState:
    async with a_bus(nats) as bus:
        return await live_state.load(ServiceClient(bus, Settings(prefix=PREFIX, nats_url=nats.url)))


async def test_it_is_the_snapshots_state_although_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are as small as can be, so that changes fall between them."""
    monkeypatch.setattr("shared.store.pages.PAGE_BYTES", 1)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    core = SnapshotCore(1)
    for i in range(40):
        core.handle(
            NodeSeen(node(f"n{i}").label({"kubernetes.io/hostname": f"h{i // 2}"}).capacity(cpu=64).build()), 0.0
        )
    for i in range(200):
        core.handle(PodSeen(pod(f"p{i}").request(cpu=f"{i % 7}").on(f"n{i % 40}").build()), 0.0)
    states: dict[int, State] = {}

    async with a_pipeline(core) as (nats, snapshot):

        async def change() -> None:
            while True:
                match draw.randrange(5):
                    case 0:
                        event: object = NodeSeen(node(f"n{draw.randrange(50)}").capacity(cpu=draw.randrange(9)).build())
                    case 1:
                        event = NodeGone(f"n{draw.randrange(50)}")
                    case 2:
                        event = PodDeleted(f"default/p{draw.randrange(200)}")
                    case 3:
                        raw = {"metadata": {"name": f"c{draw.randrange(9)}", "uid": "u"}, "value": draw.randrange(99)}
                        event = ObjectSeen(object_from(ObjectKind.NAMESPACE, raw))
                    case _:
                        event = PodSeen(
                            pod(f"p{draw.randrange(300)}").request(cpu="1").on(f"n{draw.randrange(50)}").build()
                        )
                await snapshot.handle(event)  # type: ignore[arg-type]
                states[core.seq] = core.state()
                await asyncio.sleep(0)

        changing = asyncio.create_task(change())
        try:
            live = await load(nats)
        finally:
            changing.cancel()
        assert len(states) > 20, "it did not change meanwhile"
        assert live.shard_count == 4
        assert same(live.state, states[live.state.seq])


async def test_pods_that_wait_come_with_their_bodies_unless_they_are_placed_by_now(tmp_path: Path) -> None:
    core = SnapshotCore(1)
    core.handle(NodeSeen(node("n").capacity(cpu=4).build()), 0.0)
    core.handle(PodSeen(pod("placed").uid("uid-placed").on("n").build()), 0.0)
    config = '{"kind": "KubeSchedulerConfiguration"}'
    async with a_pipeline(core, a_waiting("waits"), a_waiting("placed"), config=config) as (nats, _):
        live = await load(nats)
    assert live.pending == [a_waiting("waits")]
    assert live.groups == [
        LiveGroup(GroupApi.SCHEDULING, "shop/gang", placed={"uid-member": "member"}),
        LiveGroup(GroupApi.COSCHEDULING, "shop/group-of-placed", placed={"uid-placed": "placed"}),
    ]
    assert (live.configuration.config, live.configuration.shard_count) == (config, Settings().shard_count)
    live_state.save(live, tmp_path)
    read = live_state.read(tmp_path)
    assert same(read.state, live.state)
    assert (read.pending, read.groups, read.at) == (live.pending, live.groups, live.at)
    assert read.configuration == live.configuration


async def test_a_dump_has_no_copy_of_a_manifest(tmp_path: Path) -> None:
    secret = {LAST_APPLIED: '{"env": "hunter2"}', "team": "a"}
    waiting = replace(pod("p").build(), metadata=replace(pod("p").build().metadata, annotations=secret))
    claim = object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "c", "annotations": secret}})
    core = SnapshotCore(1)
    core.handle(ObjectSeen(claim), 0.0)
    described = replace(a_waiting("p"), body=encode_msgpack(waiting))
    live_state.save(live_state.LiveState(0.0, 1, core.state(), [described], ConfigurationRead()), tmp_path)
    assert b"hunter2" not in (tmp_path / live_state.FILE).read_bytes()
    (read,) = live_state.read(tmp_path).pending
    assert pod_from_msgpack(read.body).metadata.annotations == {"team": "a"}


async def test_a_folder_without_a_state_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make it by flotilla dump --output"):
        live_state.read(tmp_path)
    (tmp_path / live_state.FILE).write_bytes(b"\xc1")
    with pytest.raises(UserError, match="not a state that this release can read"):
        live_state.read(tmp_path)


async def test_without_a_worker_it_says_who_does_not_answer() -> None:
    async with nats_server() as nats:
        with pytest.raises(ClusterError, match="no reply from the workers"):
            await load(nats)


async def test_a_missed_delta_or_another_term_begins_again() -> None:
    follower = Follower()
    follower.hear(Heartbeat(1, 5))
    follower.hear(Delta(1, 6, []))
    follower.hear(Delta(1, 6, []))
    await follower.until(6)
    assert (follower.first, follower.last) == (5, 6)
    follower.hear(Delta(1, 8, []))
    with pytest.raises(Gap, match="deltas from 7"):
        await follower.until(8)
    follower = Follower()
    follower.hear(Delta(1, 6, []))
    follower.hear(Heartbeat(2, 0))
    with pytest.raises(Gap, match="two terms of the snapshot"):
        await follower.until(6)


async def test_more_deltas_than_are_kept_begin_again_and_use_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "MAX_DELTAS", 3)
    follower = Follower()
    for seq in range(1, 11):
        follower.hear(Delta(1, seq, []))
    assert len(follower.deltas) == 4
    with pytest.raises(Gap, match="more than 3 deltas"):
        await follower.until(5)


async def test_no_secret_of_the_configuration_is_told() -> None:
    text = b"""
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: https://me:hunter2@host/path
  filterVerb: filter
  tlsConfig: {keyData: aHVudGVyMg==}
"""
    told = without_secrets(ConfigSource("file", text))
    assert "filterVerb" in told and "host/path" in told
    assert "hunter2" not in told and "aHVudGVyMg" not in told
    assert without_secrets(None) == ""
