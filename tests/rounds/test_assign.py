"""Walk and race: merging ladders, and who waits."""

import msgspec
import pytest

from flotilla.results import error
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import MAX_DECIDED_BYTES, ClassVerdict, Reservations, Unfit, assign
from services.cycle.round.ladder_merge import LadderMerge, NoPlacement, Placement, WriteSet
from shared.cluster.devices import PlacedDevices
from shared.cluster.volumes import VolumeDecision
from shared.messages.limits import MAX_PLACEMENT_BYTES
from shared.messages.queue import ClaimRef, QueuedClaims
from shared.messages.rounds import Ladder
from testing.builders import pod
from testing.inprocess.batches import pod_info

STALE, EXHAUSTED = NoPlacement.STALE, NoPlacement.EXHAUSTED

Steps = str


def ladder(steps: Steps, *, complete: bool = True) -> Ladder:
    """From `a:9 b:8`, or `a:9:3` with a tie number."""
    parts = [step.split(":") for step in steps.split()]
    ties = [int(part[2]) if len(part) > 2 else 0 for part in parts]
    return Ladder([part[0] for part in parts], [int(part[1]) for part in parts], ties, complete)


def race(*ladders: Ladder | Steps, class_id: str = "x") -> LadderMerge:
    made = [each if isinstance(each, Ladder) else ladder(each) for each in ladders]
    return LadderMerge(class_id, [(each, 10 + i) for i, each in enumerate(made)])


def taken(racing: LadderMerge, written: WriteSet | None = None, most: int = 20) -> list[str]:
    """The nodes one after another, and what ended it."""
    nodes: list[str] = []
    for _ in range(most):
        rung = racing.take(written or WriteSet())
        if isinstance(rung, NoPlacement):
            return [*nodes, rung.name]
        nodes.append(rung.node)
    return nodes


def written(**by: str) -> WriteSet:
    made = WriteSet()
    for node, class_id in by.items():
        made.add(class_id, node)
    return made


# LadderMerge


@pytest.mark.parametrize(
    ("ladders", "nodes"),
    [
        (["a:9 a:7", "b:8 b:6"], "a b a b EXHAUSTED"),
        (["a:9 a:7", "b:8 b:6", "c:10 c:1"], "c a b a b c EXHAUSTED"),
        (["a:5 a:8", "b:6"], "b a a EXHAUSTED"),
        (["b:5", "a:5", "c:5"], "a b c EXHAUSTED"),
        (["b:5:2", "a:5:1", "c:5:3"], "c b a EXHAUSTED"),
        (["a:4:9", "b:5:1"], "b a EXHAUSTED"),
        (["", "a:1"], "a EXHAUSTED"),
        ([""], "EXHAUSTED"),
        ([], "EXHAUSTED"),
    ],
)
def test_the_best_head_of_all_ladders_is_taken(ladders: list[Steps], nodes: str) -> None:
    assert taken(race(*ladders)) == nodes.split()


def test_a_placement_names_the_state_that_its_shard_had_seen() -> None:
    racing = race("a:9", "b:8")
    assert racing.take(WriteSet()) == Placement("a", 9, 10)
    assert racing.take(WriteSet()) == Placement("b", 8, 11)


def test_a_ladder_that_ends_before_its_shard_does_ends_the_merge() -> None:
    racing = race(ladder("a:9", complete=False), ladder("b:8 b:7"))
    assert taken(racing) == ["a", "STALE"]
    assert racing.take(WriteSet()) is STALE


def test_a_node_that_its_own_class_has_written_is_not_stale() -> None:
    assert taken(race("a:9 a:7"), written(a="x")) == ["a", "a", "EXHAUSTED"]


def test_a_stale_node_is_skipped_for_an_equally_good_one() -> None:
    assert taken(race("a:9", "b:9"), written(a="other")) == ["b", "STALE"]


def test_a_stale_node_is_not_skipped_for_a_worse_one() -> None:
    racing = race("a:9 c:9", "b:8")
    assert taken(racing, written(a="other", c="other")) == ["STALE"]
    assert racing.take(WriteSet()) is STALE


def test_a_skipped_node_still_counts_for_the_next_pod() -> None:
    """1. Node a is stale and b as good: b is taken. 2. For the next pod a may still be better than c."""
    assert taken(race("a:9 b:9 c:3"), written(a="other")) == ["b", "STALE"]


def test_a_class_with_only_stale_nodes_left_waits() -> None:
    assert taken(race("a:9"), written(a="other")) == ["STALE"]


# Walk


def queued(name: str, class_id: str, priority: int = 0) -> PodInfo:
    made = pod(name).priority(priority).build()
    return pod_info(made, class_id)


def outcome(pods: list[PodInfo], **verdicts: ClassVerdict) -> dict[str, str]:
    result = assign(pods, verdicts)
    told = {q.pod.name: rung.node for q, rung in result.decided}
    told |= {q.pod.name: "unfit" for q, _ in result.unfit}
    told |= {q.pod.name: "failed" for q, _ in result.failed}
    told |= {q.pod.name: "waits" for q in result.deferred}
    listed = [*(q for q, _ in result.decided), *(q for q, _ in result.unfit), *(q for q, _ in result.failed)]
    assert len(told) == len(listed) + len(result.deferred) == len(pods)
    return told


UNFIT = Unfit("0/1 nodes are available: no.", ())


def test_pods_are_decided_in_order() -> None:
    pods = [queued("p1", "x"), queued("p2", "y"), queued("p3", "x")]
    assert outcome(pods, x=race("a:9 b:8"), y=race("c:9", class_id="y")) == {"p1": "a", "p2": "c", "p3": "b"}


def test_one_class_makes_a_node_stale_for_another() -> None:
    pods = [queued("p1", "x"), queued("p2", "y"), queued("p3", "x")]
    got = outcome(pods, x=race("a:9 a:8"), y=race("a:9 b:8", class_id="y"))
    assert got == {"p1": "a", "p2": "waits", "p3": "a"}


def test_the_first_pod_with_a_placement_is_always_decided() -> None:
    pods = [queued("p1", "y"), queued("p2", "x")]
    assert outcome(pods, x=race("a:9"), y=race("a:1", class_id="y")) == {"p1": "a", "p2": "waits"}


def test_unfit_and_failed_pods_hold_no_other_pod_up() -> None:
    pods = [queued("p1", "u", 9), queued("p2", "f", 9), queued("p3", "x")]
    assert outcome(pods, u=UNFIT, f=error("no"), x=race("a:9")) == {"p1": "unfit", "p2": "failed", "p3": "a"}


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ((5, 4), "waits waits"),
        ((5, 5), "waits b"),
        ((5, 6), "waits b"),
        ((5, 5, 4), "waits b waits"),
        ((5, 6, 5, 4), "waits b b waits"),
        ((3, 5, 4), "waits b b"),
    ],
)
def test_no_pod_of_lower_priority_is_decided_before_one_that_waits(priorities: tuple[int, ...], expected: str) -> None:
    pods = [queued(f"p{i}", "x" if i else "waiting", priority) for i, priority in enumerate(priorities)]
    got = outcome(pods, waiting=None, x=race("b:9 b:8 b:7 b:6"))
    assert [got[q.pod.name] for q in pods] == expected.split()


def test_open_and_exhausted_classes_wait() -> None:
    pods = [queued("p1", "x"), queued("p2", "x"), queued("p3", "y")]
    assert outcome(pods, x=race("a:9"), y=None) == {"p1": "a", "p2": "waits", "p3": "waits"}


def test_deferred_pods_keep_their_order() -> None:
    pods = [queued("p1", "y"), queued("p2", "x"), queued("p3", "y"), queued("p4", "x")]
    result = assign(pods, {"x": race("a:9"), "y": None})
    assert [q.pod.name for q in result.deferred] == ["p1", "p3", "p4"]


def test_a_round_result_has_the_order_of_all_its_pods() -> None:
    pods = [queued("p1", "u"), queued("p2", "x"), queued("p3", "f"), queued("p4", "x"), queued("p5", "x")]
    result = assign(pods, {"x": race("a:9 b:8"), "u": UNFIT, "f": error("no")})
    assert result.order == [q.pod.uid for q in pods]
    assert [q.pod.name for q in result.deferred] == ["p5"]


# Devices


def test_devices_for_another_number_of_claims_fail_the_pod_and_not_the_cycle() -> None:
    info = pod_info(pod("p").build(), "x")
    info.claims = QueuedClaims([ClaimRef("default/c", "c-uid")], b"")
    short = msgspec.structs.replace(ladder("a:9"), devices=[PlacedDevices([])])
    result = assign([info], {"x": race(short)})
    why = "node a was proposed with devices for 0 resource claims, and the pod has 1"
    assert [(each.uid, status) for each, status in result.failed] == [("default/p", error(why))]
    assert result.decided == []


# Sizes


def sized(*sizes: int) -> LadderMerge:
    """Placements on nodes n0, n1 and so on, each with a volume decision of the given size."""
    made = ladder(" ".join(f"n{at}:{99 - at}" for at in range(len(sizes))))
    volumes = [
        VolumeDecision([(f"default/claim-{at}", f"{at}" * size)]) if size else None for at, size in enumerate(sizes)
    ]
    return race(msgspec.structs.replace(made, volumes=volumes))


HALF_FULL = MAX_DECIDED_BYTES // 2


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        pytest.param([HALF_FULL, 1, 1], "n0 n1 n2", id="they fit"),
        pytest.param([HALF_FULL, HALF_FULL, 1, 0], "n0 waits waits waits", id="none follows one that does not fit"),
        pytest.param([HALF_FULL, 2 * HALF_FULL, 0], "n0 waits waits", id="a large one waits to be the first"),
        pytest.param([3 * HALF_FULL, 0, 0], "n0 waits waits", id="a large first one is alone"),
        pytest.param([0, HALF_FULL, HALF_FULL, 0], "n0 n1 waits waits", id="those without bytes count not"),
    ],
)
def test_no_more_is_decided_than_fits_in_a_commit(sizes: list[int], told: str) -> None:
    pods = [queued(f"p{at}", "x") for at in range(len(sizes))]
    assert " ".join(outcome(pods, x=sized(*sizes)).values()) == told


def test_a_large_placement_that_is_not_allowed_leaves_room_for_others() -> None:
    earlier = Placement("n9", 1, 7, volumes=VolumeDecision([("default/claim-0", "another volume")]))
    pods = [queued("p", "x"), queued("q", "y")]
    verdicts = {"x": sized(3 * HALF_FULL), "y": race("m:9", class_id="y")}
    result = assign(pods, verdicts, reservations=Reservations([(queued("e", "x"), earlier)]))
    assert [info.name for info in result.deferred] == ["p"]
    assert [(info.name, placement.node) for info, placement in result.decided] == [("q", "m")]


def test_a_placement_that_fits_in_no_commit_fails_its_pod_and_a_pod_of_another_class_is_decided() -> None:
    pods = [queued("p0", "x"), queued("p1", "x"), queued("q", "y")]
    result = assign(pods, {"x": sized(MAX_PLACEMENT_BYTES), "y": race("m:9", class_id="y")})
    assert [(info.name, placement.node) for info, placement in result.decided] == [("q", "m")]
    assert [info.name for info, _ in result.failed] == ["p0", "p1"]
    (why,) = {status.message for _, status in result.failed}
    assert "what is decided about its volumes and devices on node n0 takes 6,291," in why
