"""flotilla defrag: which moves would free whole nodes or racks; as one types it, and against flotilla whatif."""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, ObjectSeen, PodSeen
from shared.model.objects import ClusterObject, GroupApi, Node, ObjectKind, Pod, encode_msgpack, object_from
from shared.model.pod import EphemeralSource, Volume
from testing.builders import PodBuilder, pod
from tests.plugins.volumes.storage import claim, storage_class, volume
from tests.whatif.test_command import Types
from tests.whatif.test_command import types as types  # a fixture
from tests.whatif.test_questions import a_live, a_node
from tools import live_state
from tools.cli.defrag import Teller
from tools.live_state import LiveGroup, LiveState
from tools.whatif.answer import Question
from tools.whatif.answering import answer
from tools.whatif.defrag import (
    ALONE,
    AWAITED,
    BUDGET,
    MANY_BUDGETS,
    NO_ROOM,
    OF_GROUP,
    UNKNOWN,
    UNTRIED,
    Defrag,
    Progress,
    defrag,
)

RACK = "rack"


def owned(name: str, on: str, cpu: str = "1", kind: str = "ReplicaSet") -> PodBuilder:
    return pod(name).request(cpu=cpu).label(app=name.partition("-")[0]).owner(kind, name).on(on)


def found(
    nodes: Sequence[Node],
    *pods: PodBuilder,
    objects: Sequence[ClusterObject] = (),
    pending: Sequence[PodBuilder] = (),
    by: str = "",
    steps: int = 200,
) -> Defrag:
    live, pods_on = cluster(nodes, pods, objects, pending)
    return defrag(live, pods_on, by=by, steps=steps, seconds=60)


def cluster(
    nodes: Sequence[Node],
    pods: Sequence[PodBuilder],
    objects: Sequence[ClusterObject] = (),
    pending: Sequence[PodBuilder] = (),
) -> tuple[LiveState, dict[str, list[Pod]]]:
    live = a_live(*nodes, pods=tuple(pods), pending=tuple(pending))
    core = SnapshotCore(1)
    for node in nodes:
        core.handle(NodeSeen(node), 0.0)
    for made in pods:
        core.handle(PodSeen(made.build()), 0.0)
    for obj in objects:
        core.handle(ObjectSeen(obj), 0.0)
    pods_on: dict[str, list[Pod]] = {}
    for made in pods:
        built = made.build()
        pods_on.setdefault(built.spec.node_name, []).append(built)
    return replace(live, state=core.state()), pods_on


def budget(name: str, app: str | None, allowed: int) -> ClusterObject:
    selector = {} if app is None else {"matchLabels": {"app": app}}
    of = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}
    return object_from(ObjectKind.POD_DISRUPTION_BUDGET, of | {"status": {"disruptionsAllowed": allowed}})


def moves(of: Defrag) -> dict[str, tuple[str, str]]:
    return {move.pod: (move.source, move.target) for move in of.moves}


def freed(of: Defrag) -> dict[str, int]:
    return {unit.name: unit.moves for unit in of.freed}


THREE = [a_node(f"n{i}", 4) for i in (1, 2, 3)]


def test_the_emptiest_nodes_are_freed_and_free_ones_stay_free() -> None:
    told = found(
        [*THREE, a_node("n4", 4)], owned("a-1", "n1"), owned("b-1", "n2"), owned("c-1", "n3"), owned("c-2", "n3")
    )
    assert freed(told) == {"n1": 1, "n2": 1}
    assert moves(told) == {"default/a-1": ("n1", "n3"), "default/b-1": ("n2", "n3")}
    assert told.free == {"n4": ["n4"]}
    assert told.kept == {NO_ROOM: ["n3"]}


def test_whole_racks() -> None:
    nodes = [a_node(f"n{i}", 4, **{RACK: f"r{i // 2}"}) for i in range(6)] + [a_node("loose", 1)]
    pods = [owned(f"a-{i}", f"n{i}") for i in (0, 1, 2)] + [owned(f"b-{i}", "n4") for i in range(3)]
    told = found(nodes, *pods, by=RACK)
    assert [(unit.name, unit.nodes, unit.moves) for unit in told.freed] == [
        ("r1", ["n2", "n3"], 1),
        ("r0", ["n0", "n1"], 2),
    ]
    assert {target for _, target in moves(told).values()} <= {"n4", "n5", "loose"}
    assert told.kept == {NO_ROOM: ["r2"]}


def test_pods_that_belong_to_their_node_stay_and_do_not_count() -> None:
    mirror = owned("static-1", "n1", kind="Node")
    told = found(
        THREE[:2], owned("agent-1", "n1", kind="DaemonSet"), mirror, owned("a-1", "n1"), owned("b-1", "n2", "2")
    )
    assert moves(told) == {"default/a-1": ("n1", "n2")}
    assert freed(told) == {"n1": 1}


def test_a_pod_without_a_controller_keeps_its_node() -> None:
    told = found(THREE, pod("alone").request(cpu="1").on("n1"), owned("a-1", "n2"), owned("b-1", "n3", "2"))
    assert (freed(told), told.kept[ALONE]) == ({"n2": 1, "n3": 1}, ["n1"])


def a_training() -> tuple[LiveState, dict[str, list[Pod]]]:
    """A gang of two, and a pod of another owner."""
    members = [owned("a-1", "n1").group("train"), owned("c-1", "n3", "2").group("train")]
    live, pods_on = cluster(THREE, [*members, owned("b-1", "n2")])
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = encode_msgpack(object_from(ObjectKind.POD_GROUP, {"metadata": {"name": "train"}, "spec": spec}))
    uids = {made.build().uid: made.build().name for made in members}
    return replace(live, groups=[LiveGroup(GroupApi.SCHEDULING, "default/train", body, uids)]), pods_on


def test_pods_of_pod_groups_keep_their_nodes_unless_they_may_be_moved() -> None:
    live, pods_on = a_training()
    told = defrag(live, pods_on, seconds=60)
    assert (freed(told), told.kept) == ({"n2": 1}, {OF_GROUP: ["n1", "n3"]})
    told = defrag(live, pods_on, pod_groups=True, seconds=60)
    groups = {move.pod: move.group for move in told.moves}
    assert groups == {"default/a-1": "default/train", "default/b-1": ""}


@pytest.mark.parametrize(("allowed", "nodes"), [(0, []), (1, ["n1"]), (2, ["n1", "n2"])])
def test_no_more_pods_are_moved_than_their_budget_allows(allowed: int, nodes: list[str]) -> None:
    pods = [owned("a-1", "n1"), owned("a-2", "n2"), owned("b-1", "n3"), owned("b-2", "n3")]
    told = found(THREE, *pods, objects=[budget("a", "a", allowed), budget("other", "x", 0), budget("b", "b", 0)])
    assert list(freed(told)) == nodes
    assert set(told.kept[BUDGET]) == {"n1", "n2", "n3"} - set(nodes)


def test_a_budget_with_an_empty_selector_is_about_all_pods_and_two_about_one_pod_forbid_its_eviction() -> None:
    told = found(THREE, owned("a-1", "n1"), owned("b-1", "n2"), objects=[budget("all", None, 9), budget("a", "a", 9)])
    assert (freed(told), told.kept[MANY_BUDGETS]) == ({"n2": 1}, ["n1"])


def test_nobody_is_preempted_for_a_move() -> None:
    pods = [owned("high-1", "n1", "3").priority(10), owned("low-1", "n2", "3"), owned("low-2", "n3", "3")]
    assert freed(found(THREE, *pods)) == {}


def test_pending_pods_come_first() -> None:
    told = found(THREE[:2], owned("a-1", "n1"), owned("b-1", "n2"), pending=[pod("waits").request(cpu="3")])
    (awaited,) = told.kept[AWAITED]
    (other,) = {"n1", "n2"} - {awaited}
    assert (freed(told), told.kept[NO_ROOM]) == ({}, [other]), "all cpu of the first one is taken"


def test_pods_that_are_not_known_in_full_keep_their_node() -> None:
    live, _ = cluster(THREE, [owned("a-1", "n1")])
    assert defrag(live, {}, seconds=60).kept == {UNKNOWN: ["n1"]}


def test_the_search_is_bounded() -> None:
    nodes = [a_node(f"n{i:02}", 4) for i in range(12)]
    told = found(nodes, *(owned(f"a-{i:02}", f"n{i:02}") for i in range(12)), steps=2)
    assert (len(told.freed), told.steps) == (3, 2)
    assert len(told.kept[UNTRIED]) == 9
    live, pods_on = cluster(nodes, [owned("a-1", "n00"), owned("b-1", "n01")])
    assert defrag(live, pods_on, seconds=0).kept == {UNTRIED: ["n00", "n01"]}


def test_when_time_runs_out_what_was_confirmed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second."""
    nodes = [a_node(f"n{i:02}", 4) for i in range(24)]
    pods = [owned(f"a-{i:02}", f"n{i:02}") for i in range(24)]
    live, pods_on = cluster(nodes, pods)
    sizes = set[int]()
    for seconds in (5, 20, 60, 200, 1000):
        ticks = itertools.count()
        monkeypatch.setattr("tools.whatif.defrag.time.monotonic", lambda ticks=ticks: float(next(ticks)))
        told = list[Progress]()
        found = defrag(live, pods_on, seconds=seconds, tell=told.append)
        freed_nodes = {unit.name for unit in found.freed}
        assert {move.source for move in found.moves} == freed_nodes
        assert not freed_nodes & {move.target for move in found.moves}
        assert all(0 <= each.freed <= each.tried <= each.units == 24 for each in told)
        assert sorted((*freed_nodes, *(name for names in found.kept.values() for name in names))) == sorted(pods_on)
        sizes.add(len(found.freed))
    assert 18 in sizes and len(sizes) > 1, "all pods fit on 6 of the nodes"


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 5.0, 5.0, 9.0, 10.0, 10.0])
    teller = Teller(lambda: next(times))
    for tried in (1, 2000, 3000, 4000):
        teller.tell(Progress(tried, 5000, tried - 1))
    assert capsys.readouterr().err.splitlines() == [
        "tried 2,000 of 5,000; 1,999 could be freed",
        "tried 4,000 of 5,000; 3,999 could be freed",
    ]


@pytest.mark.parametrize("seed", range(5))
def test_moves_are_what_happens_if_the_nodes_are_drained(seed: int) -> None:
    """Asked of flotilla whatif."""
    dice = random.Random(seed)
    nodes = [a_node(f"n{i}", dice.choice([4, 8]), zone=f"z{i % 3}") for i in range(8)]
    pods: list[PodBuilder] = []
    for i in range(dice.randrange(8, 16)):
        on = dice.choice(nodes)
        made = owned(f"p-{i:02}", on.name, dice.choice(["500m", "1"])).priority(dice.choice([0, 5]))
        pods.append(made.node_selector(zone=on.metadata.labels["zone"]) if dice.random() < 0.2 else made)
    live, pods_on = cluster(nodes, pods)
    ordered = {name: sorted(of, key=lambda each: each.key) for name, of in pods_on.items()}
    told = defrag(live, ordered, seconds=60)
    assert told.freed
    closed = [name for unit in told.freed for name in unit.nodes]
    closed += [name for names in told.free.values() for name in names]
    drained = answer(live, Question(drain=closed), {name: ordered.get(name, []) for name in closed})
    assert {f"{each.namespace}/{each.name}": each.node for each in drained.pods} == {
        name: target for name, (_, target) in moves(told).items()
    }
    assert not drained.victims


def test_pods_with_claims_made_for_them_are_moved_with_new_ones() -> None:
    """What one trial leaves behind does not matter to the next: n2's pods fit nowhere, and n3 is tried after it."""
    own = Volume(name="v", ephemeral=EphemeralSource())
    pods = [
        owned(name, on, cpu).volume(own)
        for name, on, cpu in (("a-1", "n1", "1"), ("b-1", "n2", "4"), ("c-1", "n3", "2"))
    ]
    claims: list[ClusterObject] = [storage_class("made")]
    for made in pods:
        built = made.build()
        claims.append(claim(f"{built.name}-v", "made", volume=f"pv-{built.name}", owner=built.uid))
        claims.append(volume(f"pv-{built.name}", "made", kept_for=f"{built.name}-v"))
    told = found(THREE, *pods, objects=claims)
    assert (moves(told), told.kept) == ({"default/a-1": ("n1", "n3")}, {NO_ROOM: ["n2", "n3"]})


# As one types it


@pytest.fixture
def dump(tmp_path: Path) -> str:
    live, pods_on = cluster(
        [*THREE, a_node("n4", 4)], [owned("a-1", "n1"), owned("b-1", "n2"), owned("c-1", "n3", "2")]
    )
    live_state.save(live, tmp_path)
    live_state.save_pods(pods_on, tmp_path)
    return str(tmp_path)


def test_a_table_of_what_is_freed_and_of_moves(types: Types, dump: str) -> None:
    code, out, _ = types("defrag", "--dry-run", "--from", dump)
    assert (code, out[0]) == (0, "2 nodes could be freed by 2 moves; 1 is free already")
    assert out[2:] == [
        "NODE  NODES  MOVES",
        "n1    1      1",
        "n2    1      1",
        "",
        "POD          FROM  TO",
        "default/a-1  n1    n3",
        "default/b-1  n2    n3",
        "",
        f"not freed: n3: {NO_ROOM}",
    ]


def test_moves_of_pods_of_pod_groups_name_them(types: Types, tmp_path: Path) -> None:
    live, pods_on = a_training()
    live_state.save(live, tmp_path)
    live_state.save_pods(pods_on, tmp_path)
    _, out, _ = types("defrag", "--dry-run", "--pod-groups", "--from", str(tmp_path))
    assert out[6:9] == [
        "POD          FROM  TO  POD GROUP",
        "default/a-1  n1    n3  default/train",
        "default/b-1  n2    n3  -",
    ]


def test_as_json(types: Types, dump: str) -> None:
    _, out, _ = types("defrag", "--dry-run", "--from", dump, "-o", "json")
    told = json.loads("\n".join(out))
    assert told["freed"][0] == {"name": "n1", "nodes": ["n1"], "moves": 1}
    assert told["moves"][0] == {"pod": "default/a-1", "source": "n1", "target": "n3", "group": ""}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "defrag only lists moves and makes none: say so by --dry-run"),
        (["--dry-run", "--by", "shelf"], "--by: no node has the label shelf"),
        (["--dry-run", "--steps", "99999"], "--steps: takes 1 to 10000, not 99999"),
    ],
)
def test_errors_in_plain_words(types: Types, dump: str, arguments: list[str], why: str) -> None:
    assert types("defrag", "--from", dump, *arguments) == (2, [], [f"flotilla: {why}"])
