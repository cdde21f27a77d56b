"""Cycle: guess and verify, and what becomes of a round's pods."""

import pytest

from flotilla.results import Code, Status, error, unresolvable, unschedulable
from services.cycle.events import Decided, Failed, SendCommit, Superseded, Unschedulable
from services.cycle.round.next_pods import ENOUGH
from shared.framework.profile import MAX_ASKS
from shared.messages.evaluation import Rejections, Summary
from shared.messages.rounds import ClassAnswer
from shared.messages.state import Conflict
from testing.builders import pod
from testing.inprocess.batches import batch_of
from tests.rounds.script import NO_IMAGES, Script, asked, class_of, offer, placements, summary, written
from tests.rounds.support import kinds, small_pod

P, Q = small_pod("p"), small_pod("q")
BIG = small_pod("big", cpu="3")


# Guess and verify


def test_one_worker_needs_no_guess() -> None:
    script = Script("w0")
    asks = script.submit(P)
    (ask,) = asks["w0"].classes
    assert (ask.class_id, ask.count, ask.pod, ask.guess) == (class_of(P), 1, P, None)
    effects = script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 5)))
    assert placements(effects) == {"p": "a"}


def test_the_first_time_several_workers_are_asked_twice() -> None:
    script = Script("w0", "w1")
    first = script.submit(P)
    assert script.answer(first["w0"], "w0", offer(class_of(P), ("a", 99), of=summary(taints=(0, 1)))) == []
    again = asked(script.answer(first["w1"], "w1", offer(class_of(P), ("b", 5), of=summary(taints=(1, 2)))))
    assert set(again) == {"w0", "w1"}
    for name in again:
        (ask,) = again[name].classes
        assert ask.pod is None
        assert ask.guess is not None
        assert ask.guess.ranges == {"TaintToleration": (0, 2)}
        assert ask.guess.plugins == {"ImageLocality": {"nodes": 2, "images": {}}}
        assert (again[name].round, again[name].ask) == (1, 2)
    script.answer(again["w0"], "w0", offer(class_of(P), ("a", 4), of=summary(taints=(0, 1))))
    effects = script.answer(again["w1"], "w1", offer(class_of(P), ("b", 5), of=summary(taints=(1, 2))))
    assert placements(effects) == {"p": "b"}, "decided on what was judged by a wrong summary"


def test_the_second_time_the_guess_is_right_and_once_is_enough() -> None:
    script = Script("w0", "w1")
    commit = written(script.settle(script.submit(P), w0=[("a", 4)], w1=[("b", 5)]))
    script.committed(commit)
    asks = script.submit(Q)
    assert asks["w0"].classes[0].guess is not None
    script.answer(asks["w0"], "w0", offer(class_of(Q), ("a", 4)))
    assert kinds(script.answer(asks["w1"], "w1", offer(class_of(Q), ("b", 5)))) == ["SendCommit"]


def test_a_wrong_guess_costs_one_more_ask_and_never_a_wrong_answer() -> None:
    script = Script("w0", "w1")
    script.committed(written(script.settle(script.submit(P), w0=[("a", 4)], w1=[("b", 5)])))
    asks = script.submit(Q)
    changed = summary(taints=(0, 3))
    script.answer(asks["w0"], "w0", offer(class_of(Q), ("a", 99), of=changed))
    again = asked(script.answer(asks["w1"], "w1", offer(class_of(Q), ("b", 5))))
    assert again["w0"].classes[0].guess == Summary(
        nodes=2,
        feasible=2,
        plugins={"ImageLocality": {"nodes": 2, "images": {}}},
        ranges={"TaintToleration": (0, 3)},
    )
    script.answer(again["w0"], "w0", offer(class_of(Q), ("a", 4), of=changed))
    assert placements(script.answer(again["w1"], "w1", offer(class_of(Q), ("b", 5)))) == {"q": "b"}


def test_only_the_class_whose_guess_was_wrong_is_asked_about_again() -> None:
    script = Script("w0", "w1")
    small, big = class_of(P), class_of(BIG)
    script.committed(written(script.settle(script.submit(P, BIG), w0=[("a", 5)], w1=[("b", 5)])))
    asks = script.submit(Q, small_pod("big2", cpu="3"))
    script.answer(
        asks["w0"], "w0", offer(small, ("a", 4), of=summary(1)), offer(big, ("c", 9), of=summary(taints=(0, 3)))
    )
    again = asked(script.answer(asks["w1"], "w1", offer(small, ("b", 5)), offer(big, ("b", 1))))
    assert [ask.class_id for ask in again["w0"].classes] == [big]
    script.answer(again["w0"], "w0", offer(big, ("c", 7), of=summary(taints=(0, 3))))
    assert placements(script.answer(again["w1"], "w1", offer(big, ("b", 1)))) == {"q": "b", "big2": "c"}


def test_a_class_whose_summary_keeps_changing_is_decided_by_the_previous_one() -> None:
    """The next round would decide the same, and the pods behind it would wait."""
    script = Script("w0", "w1")
    calm = class_of(BIG)
    asks, count = script.submit(P, BIG), 0
    effects = []
    while asks and asks["w0"].round == 1:
        count += 1
        for name in ("w0", "w1"):
            moved = {ask.class_id: summary(taints=(0, count)) for ask in asks[name].classes}
            moved[calm] = summary()
            offers = [offer(ask.class_id, (name, 5), of=moved[ask.class_id]) for ask in asks[name].classes]
            effects = script.answer(asks[name], name, *offers)
        asks = asked(effects)
    assert count == MAX_ASKS
    assert placements(effects).keys() == {"p", "big"}


def test_an_unknown_class_is_asked_about_again_with_its_pod() -> None:
    script = Script("w0")
    script.committed(written(script.settle(script.submit(P), w0=[("a", 4)])))
    asks = script.submit(Q)
    assert asks["w0"].classes[0].pod is None
    again = asked(script.answer(asks["w0"], "w0", ClassAnswer(class_of(Q), unknown=True)))
    assert again["w0"].classes[0].pod == Q
    assert placements(script.answer(again["w0"], "w0", offer(class_of(Q), ("a", 4)))) == {"q": "a"}


# Decisions


def test_a_commit_names_the_state_of_each_evaluation() -> None:
    script = Script("w0")
    asks = script.submit(P, Q, BIG)
    assert [ask.count for ask in asks["w0"].classes] == [2, 1]
    effects = script.answer(
        asks["w0"], "w0", offer(class_of(P), ("a", 9), ("b", 8)), offer(class_of(BIG), ("c", 9)), seq=7
    )
    commit = written(effects)
    assert [(d.uid, d.node, d.seen, d.profile) for d in commit.decisions] == [
        (P.uid, "a", 7, "default-scheduler"),
        (Q.uid, "b", 7, "default-scheduler"),
        (BIG.uid, "c", 7, "default-scheduler"),
    ]
    assert [commit.loads[d.load].requests["cpu"] for d in commit.decisions] == [1000, 1000, 3000]
    assert script.committed(commit) == [Decided(P.uid, "a"), Decided(Q.uid, "b"), Decided(BIG.uid, "c")]
    assert script.core.pods_held == 0


def test_there_is_no_outcome_before_the_snapshot_has_committed() -> None:
    script = Script("w0")
    assert kinds(script.settle(script.submit(P), w0=[("a", 4)])) == ["SendCommit"]
    assert script.core.pods_held == 1


def test_a_stale_pod_is_decided_in_the_next_round() -> None:
    script = Script("w0")
    asks = script.submit(P, BIG)
    effects = script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 9)), offer(class_of(BIG), ("a", 9)))
    assert placements(effects) == {"p": "a"}
    decided, ask = script.committed(written(effects), seq=4)
    assert decided == Decided(P.uid, "a")
    again = asked([ask])["w0"]
    assert (again.round, again.min_seq, [a.class_id for a in again.classes]) == (2, 4, [class_of(BIG)])


def test_enough_pods_are_asked_about_while_a_round_is_committed() -> None:
    script = Script("w0", round_size=4 * ENOUGH)
    commit = written(script.settle(script.submit(P), w0=[("a", 4)]))
    pods = [small_pod(f"p{i}") for i in range(ENOUGH + 1)]
    assert script.submit(*pods[: ENOUGH - 1]) == {}
    (ask,) = script.submit(*pods[ENOUGH - 1 :])["w0"].classes
    assert ask.count == ENOUGH
    assert script.committed(commit) == [Decided(P.uid, "a")]


@pytest.mark.parametrize(
    ("offered", "sizes"),
    [
        pytest.param(8, [2, 4, 8, 8, 8], id="as large as is allowed"),
        pytest.param(3, [2, 4, 8, 2, 4, 8], id="small again after one of which most pods were put off"),
    ],
)
def test_a_round_is_at_most_twice_as_large_as_the_last_one(
    offered: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("core.ENOUGH", "round.runner.ENOUGH", "round.next_pods.MAX_QUESTIONS", "round.next_pods.MIN_UNIFORM"):
        monkeypatch.setattr(f"services.cycle.{name}", 2)
    script = Script("w0", round_size=8)
    asks, found = script.submit(*(small_pod(f"p{i}") for i in range(40))), list[int]()
    while len(found) < len(sizes):
        (ask,) = asks["w0"].classes
        found.append(ask.count)
        nodes = [(f"n{len(found)}-{i}", 9) for i in range(min(ask.count, offered))]
        effects = script.answer(asks["w0"], "w0", offer(ask.class_id, *nodes, complete=False))
        asks = asked(effects) | asked(script.committed(written(effects), seq=len(found) + 1))
    assert found == sizes


def test_a_lost_conflict_goes_to_the_head_of_the_line() -> None:
    script = Script("w0", round_size=2)
    asks = script.submit(P, Q, BIG)
    commit = written(script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 9), ("b", 9))))
    effects = script.committed(commit, Conflict(Q.uid, "changed"), seq=5)
    assert effects[0] == Decided(P.uid, "a")
    again = asked(effects)["w0"]
    assert [a.class_id for a in again.classes] == [class_of(Q), class_of(BIG)]
    assert again.min_seq == 5
    assert script.core.pods_held == 2


@pytest.mark.parametrize(
    ("lost", "placed", "head"),
    [
        ((), (), [1, 3, 5]),
        ((0,), (), [0, 1, 3, 5]),
        ((2,), (), [1, 2, 3, 5]),
        ((4,), (), [1, 3, 4, 5]),
        ((4, 0, 2), (), [0, 1, 2, 3, 4]),
        ((2,), (0, 4), [1, 2, 3, 5]),
    ],
)
def test_deferred_and_conflicting_pods_go_back_to_the_head_in_their_order(
    lost: tuple[int, ...], placed: tuple[int, ...], head: list[int]
) -> None:
    """Of five classes, the second and the fourth want what the one before has taken. A sixth pod is next in line."""
    script = Script("w0", round_size=5)
    pods = [small_pod(f"p{i}", cpu=str(i + 1)) for i in range(6)]
    asks = script.submit(*pods)
    offers = [offer(class_of(each), (node, 9)) for each, node in zip(pods, "aabbc", strict=False)]
    effects = script.answer(asks["w0"], "w0", *offers)
    commit = written(effects)
    assert [d.assignment.name for d in commit.decisions] == ["p0", "p2", "p4"]
    conflicts = [Conflict(pods[i].uid, "changed") for i in lost]
    conflicts += [Conflict(pods[i].uid, "there", placed=True) for i in placed]
    again = asked(script.committed(commit, *conflicts))["w0"]
    assert [a.class_id for a in again.classes] == [class_of(pods[i]) for i in head]
    assert script.core.pods_held == len({*head, 5})


def test_conflicts_of_one_class_keep_their_order() -> None:
    script = Script("w0")
    pods = [small_pod(f"p{i}") for i in range(4)]
    asks = script.submit(*pods)
    effects = script.answer(asks["w0"], "w0", offer(class_of(P), *((node, 9) for node in "abcd")))
    conflicts = [Conflict(pods[i].uid, "changed") for i in (3, 1, 2)]
    again = asked(script.committed(written(effects), *conflicts))["w0"]
    effects = script.answer(again, "w0", offer(class_of(P), *((node, 9) for node in "xyz")))
    assert list(placements(effects).items()) == [("p1", "x"), ("p2", "y"), ("p3", "z")]


def test_a_pod_with_no_offered_node_fails_if_nothing_was_decided_before_it() -> None:
    """Put back, they would be the first of the next round, which would go like this one, and so on."""
    script = Script("w0", round_size=2)
    asks = script.submit(P, BIG, small_pod("later", cpu="2"))
    cut = [offer(class_of(each), of=summary(1), complete=False) for each in (P, BIG)]
    effects = script.answer(asks["w0"], "w0", *cut)
    assert kinds(effects) == ["Failed", "Failed", "Ask"]
    assert [ask.class_id for ask in asked(effects)["w0"].classes] == [class_of(small_pod("later", cpu="2"))]


def test_a_placed_pod_is_superseded() -> None:
    script = Script("w0")
    commit = written(script.settle(script.submit(P), w0=[("a", 4)]))
    assert script.committed(commit, Conflict(P.uid, "there", placed=True)) == [Superseded(P.uid)]
    assert script.core.pods_held == 0


def test_an_unschedulable_pod_is_told_why() -> None:
    script = Script("w0", "w1")
    cpu, taint = unschedulable("Insufficient cpu").by("NodeResourcesFit"), unresolvable("taint").by("TaintToleration")
    asks, nodes = script.submit(P), {"w0": 2, "w1": 3}
    rejections = {"w0": [Rejections(cpu, 2)], "w1": [Rejections(cpu, 1), Rejections(taint, 2)]}
    for _ in range(2):
        for name, propose in asks.items():
            of = summary(0, nodes=nodes[name])
            effects = script.answer(propose, name, ClassAnswer(class_of(P), summary=of, rejections=rejections[name]))
        asks = asked(effects)
    (told,) = effects
    assert isinstance(told, Unschedulable)
    assert told.uid == P.uid
    assert told.unfit.message == "0/5 nodes are available: 2 taint, 3 Insufficient cpu."
    assert told.unfit.plugins == ("NodeResourcesFit", "TaintToleration")
    assert script.core.pods_held == 0


def test_a_cluster_without_nodes_is_the_reason() -> None:
    script = Script("w0")
    (told,) = script.answer(script.submit(P)["w0"], "w0", ClassAnswer(class_of(P), summary=summary(0, nodes=0)))
    assert isinstance(told, Unschedulable)
    assert told.unfit.message == "no nodes available to schedule pods"


def test_a_pre_filter_rejection_is_told_without_a_second_ask() -> None:
    script = Script("w0", "w1")
    status = Status(Code.UNRESOLVABLE, ("node(s) didn't satisfy plugin NodeAffinity",))
    asks = script.submit(P)
    for name, propose in asks.items():
        answer = ClassAnswer(class_of(P), pre_filter=status, summary=Summary(nodes=2), restricted_by=("NodeAffinity",))
        effects = script.answer(propose, name, answer)
    (told,) = effects
    assert isinstance(told, Unschedulable)
    assert told.unfit.message == "0/4 nodes are available: node(s) didn't satisfy plugin NodeAffinity."
    assert told.unfit.plugins == ("NodeAffinity",)


def test_a_class_that_pre_filter_rejects_at_one_worker_only_is_asked_about_again_and_fails_then() -> None:
    """One worker judges by a pod whose claim is gone, the other by a pod that has its claim."""
    script = Script("w0", "w1")
    gone = Status(Code.UNRESOLVABLE, ('could not find ResourceClaim "default/c"',), "DynamicResources")
    asks = script.submit(P)
    for _ in range(MAX_ASKS):
        assert asks.keys() == {"w0", "w1"}
        script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 5)))
        effects = script.answer(asks["w1"], "w1", ClassAnswer(class_of(P), pre_filter=gone, summary=Summary(nodes=2)))
        asks = asked(effects)
    (failed,) = effects
    assert isinstance(failed, Failed)
    assert failed.status.message.endswith('at some workers only: could not find ResourceClaim "default/c"')
    assert failed.status.plugin == "DynamicResources"
    assert script.core.pods_held == 0


def test_a_plugin_failure_at_one_worker_fails_the_pod() -> None:
    script = Script("w0", "w1")
    asks = script.submit(P)
    script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 5)))
    effects = script.answer(asks["w1"], "w1", ClassAnswer(class_of(P), failure=error("no").by("Moody")))
    assert effects == [Failed(P.uid, error("no").by("Moody"))]
    assert script.core.pods_held == 0


def test_a_round_without_a_decision_is_followed_by_the_next_one_at_once() -> None:
    script = Script("w0", round_size=1)
    asks = script.submit(P, BIG)
    nothing = ClassAnswer(class_of(P), summary=Summary(nodes=1, plugins=NO_IMAGES))
    effects = script.answer(asks["w0"], "w0", nothing)
    assert kinds(effects) == ["Unschedulable", "Ask"]
    assert script.core.rounds.begun == 2


@pytest.mark.parametrize("pods", [(P, P), (P, Q, P)])
def test_a_pod_twice_in_a_batch_or_in_two_batches_is_held_once(pods: tuple[object, ...]) -> None:
    script = Script("w0")
    asks = script.submit(P, P, Q)
    assert script.handle(batch_of([P, Q])) == []
    assert script.core.pods_held == 2
    effects = script.answer(asks["w0"], "w0", offer(class_of(P), ("a", 9), ("b", 9), ("c", 9)))
    assert placements(effects) == {"p": "a", "q": "b"}
    assert script.handle(batch_of([P])) == []
    assert kinds(script.committed(written(effects))) == ["Decided", "Decided"]


def test_a_pod_of_an_unknown_profile_fails_and_the_others_go_on() -> None:
    script = Script("w0")
    effects = script.handle(batch_of([pod("stray").scheduler("nobody").build(), P]))
    assert kinds(effects) == ["Failed", "Ask"]
    failed = effects[0]
    assert isinstance(failed, Failed)
    assert failed.status.message == "Pod default/stray: spec.schedulerName: there is no profile 'nobody'"
    assert isinstance(script.settle(asked(effects), w0=[("a", 4)])[0], SendCommit)


# What woke the pods


def test_pods_are_judged_on_no_older_state_than_their_batch_names() -> None:
    script = Script("w0")
    asks = asked(script.handle(batch_of([P], seq=7)))
    assert asks["w0"].min_seq == 7
    commit = written(script.settle(asks, w0=[("a", 5)]))
    script.committed(commit, seq=6)
    assert script.submit(Q)["w0"].min_seq == 7
