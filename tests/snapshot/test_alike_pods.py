"""Pods on nodes that are shown together count as if each were shown alone."""

from random import Random

import msgspec

from services.snapshot.events import (
    AlikePodsSeen,
    NodeGone,
    NodeSeen,
    PodDeleted,
    PodSeen,
    PodUnreadable,
    Problem,
    WatchEvents,
)
from services.snapshot.watch_decoder import WatchDecoder
from shared.messages.watch import AlikePods, PodChange, PodOnNode
from shared.model.load import load_of
from shared.model.objects import Pod, encode_msgpack
from testing.builders import pod
from tests.assigned import alike, alike_of, change_of, variants
from tests.rounds.support import SnapshotLog, commit, small_node, small_pod

SCHEDULERS = frozenset({"default-scheduler"})
SEED = 7
NODES = [small_node(name) for name in ("n0", "n1", "n2")]
WEB = [pod(name).on("n0").label(app="web").request(cpu=1).started("2026-01-01T00:00:00Z").build() for name in "abc"]


def decoder(log: SnapshotLog | None = None) -> WatchDecoder:
    return WatchDecoder(SCHEDULERS, (lambda uid: False) if log is None else log.core.is_bound)


def together(log: SnapshotLog, *pods: Pod) -> WatchEvents:
    """As the watcher publishes them for followers that read AlikePods."""
    decode = decoder(log).decode_all
    return WatchEvents([event for each in pods for event in decode(alike_of(each) or change_of(each))])


def singly(log: SnapshotLog, *pods: Pod) -> WatchEvents:
    decode = decoder(log).decode_all
    return WatchEvents([event for each in pods for event in decode(change_of(each))])


def test_they_are_one_event_with_one_load() -> None:
    (event,) = decoder().decode_all(alike(*WEB))
    assert isinstance(event, AlikePodsSeen)
    assert [*event.singly()] == [found for each in WEB if (found := decoder().decode(change_of(each))) is not None]
    assert event.load == load_of(WEB[0])


def test_the_state_is_as_if_each_were_shown_alone() -> None:
    """New, moved, changed and repeated pods, also assumed and nominated ones, those that close a node, and those on
    nodes that are not known.
    """
    rng = Random(SEED)
    logs = [SnapshotLog(*NODES) for _ in range(2)]
    for round_ in range(60):
        node = f"n{rng.randrange(4)}"
        pods = rng.sample(variants(f"p{rng.randrange(6)}", node) + variants(f"q{rng.randrange(6)}", node), k=6)
        other = small_pod(f"p{rng.randrange(6)}")
        for log, shown in zip(logs, (together, singly), strict=True):
            match round_ % 6:
                case 0:
                    log.handle(commit(round_, (other, "n0", log.core.seq)), float(round_))
                case 1:
                    log.handle(PodUnreadable(other.uid, other.key, "n1", "an odd field"))
                case 2:
                    log.handle(PodSeen(pod(other.name).nominated("n2").build()))
                case 3:
                    log.handle(PodDeleted(other.uid))
                case 4:
                    log.handle(NodeGone("n1"))
                case 5:
                    log.handle(NodeSeen(NODES[1]))
            log.handle(shown(log, *pods), float(round_))
        assert logs[0].core.state() == logs[1].core.state(), f"seed {SEED}, round {round_}"
        assert logs[0].deltas == logs[1].deltas, f"seed {SEED}, round {round_}"


def test_those_on_an_unknown_node_are_reported_and_count_once_it_is_there() -> None:
    log = SnapshotLog()
    problems = log.handle(together(log, *WEB))
    assert [str(each.error) for each in problems if isinstance(each, Problem)] == [
        f"Pod {each.key}: spec.nodeName: no node 'n0' is known" for each in WEB
    ]
    log.handle(NodeSeen(NODES[0]))
    assert log.pods() == {each.uid: "n0" for each in WEB}


def test_they_are_pending_and_nominated_no_more() -> None:
    pending = pod("a").nominated("n0").build()
    body = msgspec.Raw(encode_msgpack(pending))
    decode = decoder()
    for each in ("a", "b"):
        decode.decode(PodChange(f"default/{each}", "default", each, "default-scheduler", body=body, nominated="n0"))
    assert len(decode._pending) == 2
    decode.decode_all(alike(*WEB))
    assert len(decode._pending) == 0
    change = PodChange("default/a", "default", "a", "default-scheduler", body=body)
    assert decode.decode(change) is None, "its nomination is forgotten, and the pod not read for it"


def test_what_cannot_be_read_closes_their_nodes() -> None:
    broken = AlikePods("default", msgspec.Raw(b"\xc1"), [PodOnNode("1", "a", "n0"), PodOnNode("2", "b", "n1")])
    log = SnapshotLog(*NODES)
    log.handle(WatchEvents(decoder().decode_all(broken)))
    assert [each.node.name for each in log.core.state().nodes if each.node.spec.unschedulable] == ["n0", "n1"]
