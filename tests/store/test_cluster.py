"""What belongs to the whole cluster, in Redis: objects of every kind, nominations, shared hostnames."""

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Event, NodeSeen, ObjectGone, ObjectSeen, PodSeen
from shared.cluster.volumes import VolumeDecision
from shared.messages.state import Assignment, Commit, Decision, State
from shared.model.objects import ClusterObject, ObjectKind, Pod, key_of, kind_of
from shared.model.wellknown import HOSTNAME
from shared.store.link import RedisLink
from shared.store.term import open_term
from testing.builders import node, pod
from tests.samples import a_claim, a_volume, an_object
from tests.servers import redis_server
from tests.store.support import PREFIX, begin, commit, linked, loaded, persists, small_node

pytestmark = pytest.mark.asyncio

P = pod("p").request(cpu="1").build()


def nominated(where: str) -> Pod:
    return msgspec.structs.replace(P, status=msgspec.structs.replace(P.status, nominated_node_name=where))


def twin(name: str) -> NodeSeen:
    return NodeSeen(node(name).capacity(cpu=4).label({HOSTNAME: "twin"}).build())


def everything() -> list[Event]:
    objects: list[Event] = [ObjectSeen(an_object(kind)) for kind in ObjectKind]
    running = msgspec.structs.replace(P.status, start_time="1970-01-01T00:01:00Z")
    placed = pod("placed").request(cpu="1").on("a").build()
    return [
        twin("a"),
        twin("b"),
        *objects,
        PodSeen(nominated("a")),
        PodSeen(msgspec.structs.replace(placed, status=running)),
    ]


def facts(state: State) -> tuple[object, ...]:
    """Equal data, equal states, in any order and numbering."""
    objects: dict[tuple[ObjectKind, str], ClusterObject] = {(kind_of(o), key_of(o)): o for o in state.objects}
    nominations = {each.uid: (each.node, each.key, state.loads[each.load]) for each in state.nominations}
    pods = {
        uid: (each.node.name, one.key, one.started, state.loads[one.load])
        for each in state.nodes
        for uid, one in each.pods.items()
    }
    return objects, nominations, state.shared_hostnames, pods


async def stored(link: RedisLink) -> tuple[object, ...]:
    return facts(await loaded(link))


async def test_a_written_state_is_read_back() -> None:
    core = SnapshotCore(1)
    persists(core, *everything())
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        objects, nominations, hostnames, pods = await stored(link)
    assert (objects, nominations, hostnames, pods) == facts(core.state())
    assert {kind_of(each) for each in core.state().objects} == {*ObjectKind} - {ObjectKind.COMPOSITE_POD_GROUP}
    assert hostnames == ["twin"]


async def test_changes_are_written() -> None:
    core = SnapshotCore(1)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, *everything()))
        assert await stored(link) == facts(core.state())
        gone: list[Event] = [ObjectGone(kind, key_of(an_object(kind))) for kind in ObjectKind]
        await writer.write(persists(core, *gone, PodSeen(P), NodeSeen(small_node("b"))))
        assert await stored(link) == facts(core.state())
    state = core.state()
    assert (state.objects, state.nominations, state.shared_hostnames) == ([], [], [])


async def test_a_rewrite_removes_the_previous_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.store.writer.CHUNK", 64)
    core, after = SnapshotCore(1), SnapshotCore(2)
    persists(core, *everything())
    persists(after, NodeSeen(small_node("a")))
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        assert await stored(link) == facts(core.state())
        await begin(link, after)
        assert await stored(link) == facts(after.state())


async def test_a_nomination_that_a_commit_ends_is_gone_and_comes_back() -> None:
    core = SnapshotCore(1)
    persists(core, NodeSeen(small_node("a")), PodSeen(nominated("a")))
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [(P.uid, "a")])))
        assert await stored(link) == facts(core.state())
        assert (await loaded(link)).nominations == []


async def test_the_next_leader_and_workers_read_decided_volumes() -> None:
    core = SnapshotCore(1)
    persists(core, NodeSeen(small_node("a")), ObjectSeen(a_volume("v")), ObjectSeen(a_claim("c")))
    wanted = VolumeDecision(bindings=[("default/c", "v")])
    decision = Decision(Assignment(P.uid, "default", "p", "default-scheduler", "a", volumes=wanted), 0, core.seq)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        plain = commit(core, 1, [(P.uid, "a")])
        await writer.write(persists(core, Commit(1, 1, plain.loads, [decision])))
        assert await stored(link) == facts(core.state())
        recovered = await open_term(link, PREFIX, 2)
        following = SnapshotCore(2, recovered.ledger, recovered.answer)
        persists(following, NodeSeen(small_node("a")), ObjectSeen(a_claim("c")), ObjectSeen(a_volume("v")))
        assert facts(following.state())[0] == facts(core.state())[0]


async def test_many_objects_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.store.reader.AT_ONCE", 3)
    core = SnapshotCore(1)
    persists(core, *(ObjectSeen(an_object(ObjectKind.SERVICE, f"s{i}")) for i in range(10)))
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        assert await stored(link) == facts(core.state())
