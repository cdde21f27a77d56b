"""A gang by itself: what becomes of its members, step by step and in the end."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.results import error
from services.cycle.round.admission import PodInfo, needed
from services.cycle.round.assign import Reservations, RoundResult, Unfit, assign
from services.cycle.round.gang import (
    MAX_IDLE_STEPS,
    GangRound,
)
from services.cycle.round.gang_memory import GangMemory
from services.cycle.round.gang_reasons import MAX_NAMED
from services.cycle.round.gangs import take_gang, undecided
from services.cycle.round.given_pods import GivenPods
from services.cycle.round.ladder_merge import LadderMerge, Placement
from shared.cluster.devices import PlacedDevices
from shared.cluster.volumes import VolumeDecision
from shared.messages.limits import MAX_GANG
from shared.messages.queue import ClaimRef, Gang, QueuedClaims
from shared.messages.rounds import Given, Ladder
from shared.model.devices import AllocationResult
from shared.model.load import PodLoad, load_of
from testing.builders import pod
from testing.inprocess.batches import pod_info

G = Gang("ns/g", 2)
LOAD = PodLoad("default", {"app": "g"}, {"cpu": 1000})
FULL = Unfit("0/1 nodes are available: 1 Insufficient cpu.", ("NodeResourcesFit",), 1)
BUSY = Unfit("0/1 nodes are available: 1 node(s) had a taint.", ("TaintToleration",), 1)
PLENTY = 1 << 20


def member(name: str, gang: Gang | None = G, class_id: str = "c", size: int = 0) -> PodInfo:
    return pod_info(pod(name).build(), class_id, load=LOAD, gang=gang, size=size)


A, B, C = member("a"), member("b"), member("c")


def on(node: str, volumes: VolumeDecision | None = None) -> Placement:
    return Placement(node, 1, 7, volumes=volumes)


def step(gang: GangRound, result: RoundResult) -> None:
    """A step with all that are open."""
    gang.open.clear()
    result.order = result.order or [
        queued.pod.uid
        for queued in (
            *(queued for queued, _ in result.decided),
            *(queued for queued, _ in result.unfit),
            *(queued for queued, _ in result.failed),
            *result.deferred,
        )
    ]
    gang.take(result)


def told(found: Sequence[tuple[PodInfo, Unfit]]) -> dict[str, Unfit]:
    return {queued.pod.name: unfit for queued, unfit in found}


# Out of the backlog


def test_only_the_members_at_the_head_of_the_backlog_are_taken() -> None:
    other, single = member("d", Gang("ns/h", 1)), member("s", None)
    backlog = deque([A, B, other, C, single])
    gang = take_gang(backlog, GangMemory())
    assert isinstance(gang, GangRound)
    assert gang is not None
    assert (gang.key, gang.least, gang.members) == ("ns/g", 2, [A, B])
    assert list(backlog) == [other, C, single]


def test_a_pod_by_itself_is_no_gang() -> None:
    backlog = deque([member("s", None), A])
    assert take_gang(backlog, GangMemory()) is None
    assert len(backlog) == 2
    assert take_gang(deque(), GangMemory()) is None


def test_a_gang_that_needs_no_more_members_is_none() -> None:
    assert needed(Gang("ns/g", 0)) is None
    assert needed(None) is None
    assert needed(G) is G


def test_a_gang_that_cannot_be_decided_together_fails() -> None:
    def failure(*members: PodInfo) -> str:
        refused = GangRound(members).refused(PLENTY)
        assert refused is not None
        assert [queued for queued, _ in refused.failed] == list(members)
        return refused.failed[0][1].message

    assert f"at most {MAX_GANG} pods" in failure(*(member(f"p{i}") for i in range(MAX_GANG + 1)))
    assert "pods take 1048577 bytes, and at most 1048576" in failure(member("a", size=PLENTY), member("b", size=1))
    mixed = failure(A, pod_info(pod("b").scheduler("other").build(), "c", gang=G))
    assert mixed.endswith('.spec.schedulerName set, got: "default-scheduler" and "other"')
    assert GangRound([A, B]).refused(PLENTY) is None


# Step by step


def test_deferred_members_are_decided_in_the_next_step_with_the_others_given() -> None:
    gang = GangRound([A, B, C])
    step(gang, RoundResult([], decided=[(A, on("n1"))], deferred=[B, C]))
    assert not gang.is_over
    assert list(gang.open) == [B, C]
    assert gang.given() == ([Given(A.pod.uid, "n1", 0)], [LOAD])
    step(gang, RoundResult([], decided=[(B, on("n1")), (C, on("n2"))]))
    assert gang.is_over
    assert gang.given()[1] == [LOAD]
    assert [(queued.pod.name, rung.node) for queued, rung in gang.outcome().decided] == [
        ("a", "n1"),
        ("b", "n1"),
        ("c", "n2"),
    ]


def test_a_gang_without_a_verdict_in_eight_steps_fails() -> None:
    gang = GangRound([A, B])
    for _ in range(MAX_IDLE_STEPS - 1):
        step(gang, RoundResult([], deferred=[A, B]))
        assert not gang.is_over
    step(gang, RoundResult([], deferred=[A, B]))
    assert gang.is_over
    assert gang.outcome().failed[0][1].message == 'pod group "ns/g": no member was decided in 8 steps'


def test_progress_resets_the_count_of_idle_steps() -> None:
    gang = GangRound([A, B, C])
    for found in (
        RoundResult([], decided=[(A, on("n"))], deferred=[B, C]),
        RoundResult([], unfit=[(B, FULL)], deferred=[C]),
    ):
        for _ in range(MAX_IDLE_STEPS - 1):
            step(gang, RoundResult([], deferred=list(gang.open)))
        step(gang, found)
    assert not gang.is_over


# The end


def test_enough_members_are_placed_and_the_others_wait_for_the_commit() -> None:
    gang = GangRound([A, B, C])
    step(gang, RoundResult([], decided=[(A, on("n1")), (C, on("n2"))], unfit=[(B, FULL)]))
    whole = gang.outcome()
    assert whole.order == [queued.pod.uid for queued in (A, B, C)]
    assert [queued for queued, _ in whole.decided] == [A, C]
    assert (whole.withheld, whole.unfit, whole.failed, whole.deferred) == ([(B, FULL)], [], [], [])


def test_with_too_few_members_all_are_unschedulable() -> None:
    gang = GangRound([A, B, C])
    step(gang, RoundResult([], decided=[(A, on("n1"))], unfit=[(B, FULL), (C, BUSY)]))
    whole = gang.outcome()
    assert (whole.decided, whole.withheld, whole.failed) == ([], [], [])
    plugins = ("GangScheduling", "NodeResourcesFit", "TaintToleration")
    assert told(whole.unfit) == {
        "a": Unfit(
            "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled: "
            f'only 1 of the 2 members of pod group "ns/g" that are needed fit: {FULL.message}',
            plugins,
        ),
        "b": replace(FULL, plugins=plugins),
        "c": replace(BUSY, plugins=plugins),
    }


def test_fewer_members_than_needed_are_unschedulable_even_if_all_fit() -> None:
    gang = GangRound([A])
    step(gang, RoundResult([], decided=[(A, on("n1"))]))
    (unfit,) = told(gang.outcome().unfit).values()
    assert unfit.message.endswith('only 1 of the 2 members of pod group "ns/g" that are needed fit')
    assert unfit.plugins == ("GangScheduling",)


def test_one_failed_member_fails_all_at_once() -> None:
    gang = GangRound([A, B, C])
    step(gang, RoundResult([], decided=[(A, on("n1"))], failed=[(B, error("boom").by("Moody"))], deferred=[C]))
    assert gang.is_over
    whole = gang.outcome()
    assert {queued.pod.name: (status.message, status.plugin) for queued, status in whole.failed} == {
        "a": ("failed to schedule other pod from a pod group: boom", "Moody"),
        "b": ("boom", "Moody"),
        "c": ("failed to schedule other pod from a pod group: boom", "Moody"),
    }
    assert whole.decided == []


@pytest.mark.parametrize("fits", [0, 1])
def test_what_the_reasons_of_a_large_gang_have_in_common_is_made_once(fits: int) -> None:
    """The cycle does nothing else meanwhile, so a gang's end must not take the square of its members."""
    members = [member(f"m{i}", Gang("ns/g", MAX_GANG)) for i in range(MAX_GANG)]
    gang = GangRound(members)
    decided, unfit = [(info, on("n1")) for info in members[:fits]], [(info, FULL) for info in members[fits:]]
    step(gang, RoundResult([], decided=decided, unfit=unfit))
    began = time.process_time()
    whole = gang.outcome()
    assert time.process_time() - began < 2
    assert len(whole.unfit) == MAX_GANG
    [named] = {id(why.kept_out_by): why.kept_out_by for _, why in whole.unfit}.values()
    assert named == tuple(info.key for info in members[fits : fits + MAX_NAMED])
    assert len({id(why.plugins) for _, why in whole.unfit}) == 1


# After a conflict


def test_withheld_members_are_decided_again_with_those_that_lost() -> None:
    walked = RoundResult([], decided=[(A, on("n1")), (B, on("n2"))], withheld=[(C, FULL)])
    again = undecided(walked, {A.pod.uid: A, B.pod.uid: B})
    assert again == {queued.pod.uid: queued for queued in (A, B, C)}


def test_placed_members_are_no_longer_needed() -> None:
    walked = RoundResult([], decided=[(A, on("n1")), (B, on("n2"))], withheld=[(C, FULL)])
    again = undecided(walked, {B.pod.uid: B})
    assert {queued.pod.name: queued.gang for queued in again.values()} == {"b": Gang("ns/g", 1), "c": Gang("ns/g", 1)}
    pair = undecided(RoundResult([], decided=[(A, on("n")), (B, on("n")), (C, on("n"))]), {C.pod.uid: C})
    assert pair[C.pod.uid].gang is None


def test_pods_without_a_gang_are_decided_again_unchanged() -> None:
    one, other = member("x", None), member("y", None)
    assert undecided(RoundResult([], decided=[(one, on("n")), (other, on("n"))]), {"y": other}) == {"y": other}


# Volumes


def bound(claim: str, volume: str) -> VolumeDecision:
    return VolumeDecision(bindings=[(claim, volume)])


MADE = VolumeDecision(provisions=["ns/c"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (on("n1", bound("ns/c", "v")), on("n2", bound("ns/d", "v"))),
        (on("n1", bound("ns/c", "v")), on("n2", bound("ns/c", "w"))),
        (on("n1", bound("ns/c", "v")), on("n2", MADE)),
        (on("n1", MADE), on("n1", MADE)),
        (on("n1", MADE), on("n2", MADE)),
    ],
)
def test_no_two_placements_of_a_step_are_about_the_same_claim_or_volume(first: Placement, second: Placement) -> None:
    reservations = Reservations([])
    assert reservations.allow(member("x", class_id="c"), first)
    assert not reservations.allow(member("y", class_id="d"), second)
    assert not reservations.allow(member("y", class_id="d"), on("n3"))
    assert reservations.allow(member("z", class_id="e"), on("n3"))


def test_members_do_not_allocate_one_claim_twice_in_a_step_or_later() -> None:
    sharing = QueuedClaims([ClaimRef("ns/k", "u")], b"")
    first, second = (replace(member(name, class_id=name), claims=sharing) for name in "xy")
    own = replace(member("z", class_id="z"), claims=QueuedClaims([ClaimRef("ns/own", "v")], b""))
    allocating = replace(on("n1"), devices=PlacedDevices([AllocationResult()]))
    reservations = Reservations([])
    assert reservations.allow(first, allocating)
    assert not reservations.allow(second, allocating)
    assert reservations.allow(own, allocating)
    later = Reservations([(first, allocating)])
    assert not later.allow(second, allocating)
    assert later.allow(replace(second, class_id="other"), replace(on("n1"), devices=PlacedDevices([None])))


def test_a_later_step_may_only_repeat_a_reservation() -> None:
    reservations = Reservations([(A, on("n1", MADE))])
    assert reservations.allow(member("x", class_id="c"), on("n1", MADE))
    assert reservations.allow(member("x", class_id="c"), on("n1", MADE))
    assert not reservations.allow(member("y", class_id="d"), on("n2", MADE))


def test_a_pod_with_conflicting_volumes_is_deferred() -> None:
    ladder = Ladder(["n1", "n2"], [2, 1], [0, 0], volumes=[MADE, MADE])
    result = assign([A, B], {"c": LadderMerge("c", [(ladder, 7)])}, reservations=Reservations([]))
    assert [queued for queued, _ in result.decided] == [A]
    assert result.deferred == [B]


def test_members_that_share_a_claim_all_wait_for_its_volume() -> None:
    """When the second was judged, the claim was taken to have its volume."""
    load = load_of(pod("p").claim("c").build())
    first, second = (pod_info(pod(name).build(), "c", load=load, gang=G) for name in "ab")
    third = C
    gang = GangRound([first, second, third])
    step(gang, RoundResult([], decided=[(first, on("n1", bound("default/c", "v")))], deferred=[second, third]))
    step(gang, RoundResult([], decided=[(second, on("n1")), (third, on("n1"))]))
    waits = bound("default/c", "v")
    assert [rung.volumes for _, rung in gang.outcome().decided] == [waits, waits, None]


def test_members_that_share_a_resource_claim_all_say_what_it_is_given() -> None:
    """When the second was judged, the claim had its devices. Of a claim that a pod names twice, the first counts."""
    sharing = QueuedClaims([ClaimRef("ns/k", "u"), ClaimRef("ns/old", "v"), ClaimRef("ns/k", "u")], b"")
    first, second = (replace(member(name), claims=sharing) for name in "xy")
    made, again = AllocationResult(), AllocationResult(allocation_timestamp="2026-01-01T00:00:00Z")
    gang = GangRound([first, second])
    one = replace(on("n1"), devices=PlacedDevices([made, None, again]))
    other = replace(on("n1"), devices=PlacedDevices([None, None, None]))
    step(gang, RoundResult([], decided=[(first, one)], deferred=[second]))
    step(gang, RoundResult([], decided=[(second, other)]))
    given = [rung.devices.allocations for _, rung in gang.outcome().decided if rung.devices is not None]
    assert given == [[made, None, again], [made, None, made]]


def test_steps_always_come_to_an_end() -> None:
    """Each decides one at least, or finds it unfit; here just one."""
    members = [member(f"p{i}") for i in range(50)]
    gang = GangRound(members)
    steps = 0
    while not gang.is_over:
        first, *others = gang.open
        step(gang, RoundResult([], decided=[(first, on("n"))], deferred=others))
        steps += 1
    assert steps == len(members)
    assert [queued for queued, _ in gang.outcome().decided] == members


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 3), max_size=3)), max_size=6))
def test_members_are_named_to_workers_as_if_none_had_been_named_before(steps: list[tuple[int, list[int]]]) -> None:
    """Each step keeps some of the decided members of the one before, and adds some."""
    made = [pod_info(pod(f"m{i}").build(), f"c{i}", load=PodLoad(f"ns{i % 2}", {})) for i in range(4)]
    known, decided = GivenPods(), list[tuple[PodInfo, Placement]]()
    for kept, more in steps:
        decided = [*decided[:kept], *((made[i], on(f"n{i}")) for i in more)]
        given_, loads = known.of(decided)
        assert (given_, loads) == GivenPods().of(decided)
        assert [(each.uid, each.node, loads[each.load]) for each in given_] == [
            (info.uid, placement.node, info.template.load) for info, placement in decided
        ]
