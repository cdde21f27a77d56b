"""Nominations in commits: conflicts, reserved room, and evictions."""

from collections.abc import Sequence

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Effect, Fence, LookedUp, NodeGone, NodeSeen, ObjectSeen, PodDeleted, PodSeen, Tick
from services.snapshot.state.nominator import LOOK_UP_SECONDS, Nomination, Nominator
from services.snapshot.state.preemption_victims import EVICTION_WINDOW, VICTIM_SECONDS
from shared.messages.binding import Displaced, Evict, Evicted
from shared.messages.preemption import Victim
from shared.messages.queue import POD_GONE, ForgottenPod
from shared.messages.state import Assignment, Commit, Nominate, NominationGone, PodGone, PodNominated, PodPlaced
from shared.model.load import PodLoad, load_of
from shared.model.objects import LabelSelector, ObjectMeta, Pod, PodDisruptionBudget
from shared.model.workloads import PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from testing.builders import pod
from testing.inprocess.batches import nominated, terminating
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, changes, commit, finished, kinds, refusals, reply, small_node, small_pod

A, B = small_node("a"), small_node("b")
LOW, OTHER = (pod(name).request(cpu="1").priority(1).build() for name in ("low", "other"))
P, Q = (pod(name).request(cpu="2").priority(10).build() for name in ("p", "q"))
BETWEEN = pod("between").request(cpu="1").priority(5).build()


def victim(of: Pod, *, terminating: bool = False) -> Victim:
    return Victim(of.uid, of.key, of.priority, terminating=terminating)


def as_going(of: Pod) -> PodLoad:
    return msgspec.structs.replace(load_of(of), preempted=True)


def nominate(of: Pod, seen: int, *victims: Victim, node: str = "a", load: int = 0) -> Nominate:
    return Nominate(Assignment(of.uid, of.namespace, of.name, "default-scheduler", node), load, seen, list(victims))


def nominations(number: int, *wanted: Nominate, loads: Sequence[Pod] = (P,), lose: Sequence[Pod] = ()) -> Commit:
    return Commit(1, number, [load_of(each) for each in loads], [], list(wanted), [each.uid for each in lose])


def a_log(*on_a: Pod) -> SnapshotLog:
    log = SnapshotLog(A, B)
    for each in on_a or (LOW,):
        log.handle(PodSeen(bound(each, "a")))
    return log


def promised(log: SnapshotLog) -> dict[str, str]:
    return {each.uid: each.node for each in log.core.state().nominations}


def evicted(effects: Sequence[Effect]) -> list[Evict]:
    return [effect for effect in effects if isinstance(effect, Evict)]


def after_nomination(*victims: Pod) -> SnapshotLog:
    log = a_log(*victims)
    log.handle(nominations(1, nominate(P, log.core.seq, *map(victim, victims or (LOW,)))))
    return log


def test_a_nomination_is_safe_published_answered_and_carried_out_in_this_order() -> None:
    log = a_log()
    effects = log.handle(nominations(1, nominate(P, log.core.seq, victim(LOW))))
    assert kinds(effects) == ["Persist", "Delta", "Reply", "Evict"]
    assert changes(effects) == [PodNominated(P.uid, "a", 0, P.key), PodPlaced(LOW.uid, "a", 1, LOW.key)]
    assert log.deltas[-1].loads == [load_of(P), as_going(LOW)]
    assert (reply(effects).seq, reply(effects).conflicts) == (log.core.seq, [])
    assert evicted(effects) == [
        Evict(
            epoch=0,
            attempt=log.core.seq,
            uid=P.uid,
            namespace="default",
            name="p",
            profile="default-scheduler",
            node="a",
            victims=[Displaced(LOW.uid, "default", "low")],
            window=EVICTION_WINDOW,
        )
    ]
    assert promised(log) == {P.uid: "a"}


def budget(name: str, app: str, allowed: int, *, disrupted: Sequence[str] = ()) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(disrupted, "")),
    )


def of_app(name: str, **labels: str) -> Pod:
    return pod(name).label(labels, app="web").request(cpu="100m").priority(1).build()


def violations(effects: Sequence[Effect]) -> dict[str, tuple[str, ...]]:
    return {each.name: each.violates for evict in evicted(effects) for each in evict.victims}


def test_a_victim_names_the_budgets_that_do_not_allow_its_eviction() -> None:
    first, second, third = (of_app(f"web-{i}", tier=f"t{i}") for i in range(3))
    counted, other = of_app("counted"), pod("other").request(cpu="100m").priority(1).build()
    log = a_log(first, second, third, counted, other)
    log.handle(ObjectSeen(budget("web", "web", 2, disrupted=["counted"])))
    log.handle(ObjectSeen(budget("all", "another", 0)))
    victims = map(victim, (first, counted, second, third, other))
    effects = log.handle(nominations(1, nominate(P, log.core.seq, *victims)))
    assert violations(effects) == {"web-0": (), "counted": (), "web-1": (), "web-2": ("web",), "other": ()}


def test_pods_that_stay_take_nothing_from_a_budget_and_terminating_ones_have_already() -> None:
    first, second = of_app("web-0"), of_app("web-1")
    log = a_log(first, of_app("stays"), second)
    log.handle(ObjectSeen(budget("web", "web", 1)))
    gone = victim(first, terminating=True)
    assert violations(log.handle(nominations(1, nominate(P, log.core.seq, gone, victim(second))))) == {"web-1": ()}


def test_nominations_of_one_commit_take_from_the_same_budget() -> None:
    first, second = of_app("web-0"), of_app("web-1")
    log = a_log(first)
    log.handle(PodSeen(bound(second, "b")))
    log.handle(ObjectSeen(budget("web", "web", 1)))
    seq = log.core.seq
    both = nominate(P, seq, victim(first)), nominate(Q, seq, victim(second), node="b")
    assert violations(log.handle(nominations(1, *both))) == {"web-0": (), "web-1": ("web",)}


def test_no_more_than_a_few_budgets_are_named() -> None:
    only = of_app("web-0")
    log = a_log(only)
    for name in "dcab":
        log.handle(ObjectSeen(budget(name, "web", 0)))
    assert violations(log.handle(nominations(1, nominate(P, log.core.seq, victim(only))))) == {"web-0": ("a", "b")}


def test_a_nomination_stands_by_its_number_and_node_until_another_one_counts() -> None:
    log = a_log()
    (evict,) = evicted(log.handle(nominations(1, nominate(P, log.core.seq, victim(LOW)))))
    assert log.core.cluster.nominator.stands(P.uid, evict.attempt, "a")
    assert not log.core.cluster.nominator.stands(P.uid, evict.attempt, "b")
    assert not log.core.cluster.nominator.stands(P.uid, evict.attempt + 1, "a")
    assert not log.core.cluster.nominator.stands(P.uid, 0, "a")
    log.handle(PodSeen(nominated(P, "a")))
    assert log.core.cluster.nominator.stands(P.uid, evict.attempt, "a"), "its status shows it"
    log.handle(PodSeen(nominated(P, "b")))
    log.handle(PodSeen(nominated(P, "a")))
    assert not log.core.cluster.nominator.stands(P.uid, evict.attempt, "a"), "it is set by another client"


def test_terminating_victims_are_not_evicted_again() -> None:
    log = a_log(LOW, terminating(OTHER, "now"))
    wanted = nominate(P, log.core.seq, victim(LOW), victim(OTHER, terminating=True))
    (evict,) = evicted(log.handle(nominations(1, wanted)))
    assert [each.uid for each in evict.victims] == [LOW.uid]


def test_if_all_victims_are_terminating_no_eviction_is_sent() -> None:
    log = a_log(terminating(LOW, "now"))
    effects = log.handle(nominations(1, nominate(P, log.core.seq, victim(LOW, terminating=True))))
    assert evicted(effects) == []
    assert promised(log) == {P.uid: "a"}


def test_an_assumed_victim_is_sent_with_its_attempt() -> None:
    log = SnapshotLog(A, B)
    log.handle(commit(1, (LOW, "a", log.core.seq), (OTHER, "a", log.core.seq)))
    log.handle(finished(OTHER.uid, log.attempt(OTHER)))
    wanted = nominate(P, log.core.seq, victim(LOW), victim(OTHER))
    (evict,) = evicted(log.handle(nominations(2, wanted)))
    assert {each.uid: each.attempt for each in evict.victims} == {LOW.uid: log.attempt(LOW), OTHER.uid: 0}


def test_a_repeated_commit_gets_the_same_answer_and_evicts_no_pod_again() -> None:
    log = a_log()
    message = nominations(1, nominate(P, log.core.seq, victim(LOW)))
    first = reply(log.handle(message))
    effects = log.handle(message)
    assert kinds(effects) == ["Reply"]
    assert reply(effects) == first


# What stands against it


def test_a_pod_with_a_place_is_nominated_nowhere() -> None:
    log = a_log()
    seen = log.core.seq
    log.handle(PodSeen(bound(P, "b")))
    effects = log.handle(nominations(1, nominate(P, seen, victim(LOW))))
    assert refusals(effects) == {P.uid: ("the pod is on node b already", True)}
    assert evicted(effects) == []


def test_a_node_that_is_gone_promises_nothing() -> None:
    log = a_log()
    seen = log.core.seq
    log.handle(NodeGone("a"))
    effects = log.handle(nominations(1, nominate(P, seen, victim(LOW))))
    assert refusals(effects) == {P.uid: ("node a is gone", False)}


@pytest.mark.parametrize("what", ["a pod comes", "a victim goes", "room is promised"])
def test_a_nomination_is_rejected_if_its_node_has_changed(what: str) -> None:
    log = a_log(LOW)
    seen = log.core.seq
    match what:
        case "a pod comes":
            log.handle(PodSeen(bound(OTHER, "a")))
        case "a victim goes":
            log.handle(PodSeen(terminating(bound(LOW, "a"), "now")))
        case "room is promised":
            log.handle(nominations(1, nominate(Q, seen, victim(LOW)), loads=(Q,)))
    effects = log.handle(nominations(2, nominate(P, seen, victim(LOW))))
    assert refusals(effects) == {P.uid: ("node a has changed since the evaluation", False)}
    assert (changes(effects), evicted(effects)) == ([], [])
    assert P.uid not in promised(log)


def test_if_a_victim_has_left_the_nomination_is_rejected() -> None:
    log = a_log(LOW, OTHER)
    seen = log.core.seq
    log.handle(PodDeleted(LOW.uid))
    effects = log.handle(nominations(1, nominate(P, seen, victim(LOW), victim(OTHER))))
    assert refusals(effects) == {P.uid: ("pod default/low has left node a since the evaluation", False)}
    assert evicted(effects) == []


def test_two_of_one_commit_do_not_get_the_same_node() -> None:
    log = a_log(LOW)
    seen = log.core.seq
    wanted = (nominate(P, seen, victim(LOW)), nominate(Q, seen, victim(LOW), load=1))
    effects = log.handle(nominations(1, *wanted, loads=(P, Q)))
    assert refusals(effects) == {Q.uid: ("node a was given to another pod since the evaluation", False)}
    assert promised(log) == {P.uid: "a"}


# How the room is kept


def test_an_evaluation_without_the_nomination_is_rejected() -> None:
    log = a_log()
    seen = log.core.seq
    log.handle(nominations(1, nominate(P, seen, victim(LOW))))
    effects = log.handle(commit(2, (BETWEEN, "a", seen), (small_pod("r"), "b", seen)))
    assert refusals(effects) == {BETWEEN.uid: ("node a has changed since the evaluation", False)}
    assert refusals(log.handle(commit(3, (BETWEEN, "a", log.core.seq)))) == {}


def test_the_loaded_state_has_the_nomination() -> None:
    log = after_nomination()
    for shards in ([0], [1]):
        state = log.core.state(shards, 2)
        assert [(each.uid, each.node, each.key) for each in state.nominations] == [(P.uid, "a", P.key)]
        assert state.loads[state.nominations[0].load] == load_of(P)


def test_nominations_of_lower_priority_to_the_node_are_revoked() -> None:
    log = a_log(LOW)
    low, equal = nominated(BETWEEN, "a"), nominated(Q, "a")
    elsewhere = nominated(small_pod("elsewhere"), "b")
    for each in (low, equal, elsewhere):
        log.handle(PodSeen(each))
    effects = log.handle(nominations(1, nominate(P, log.core.seq, victim(LOW))))
    assert changes(effects)[:2] == [PodNominated(P.uid, "a", 0, P.key), NominationGone(low.uid)]
    (evict,) = evicted(effects)
    assert evict.denominated == [Displaced(low.uid, "default", "between")]
    assert promised(log) == {P.uid: "a", equal.uid: "a", elsewhere.uid: "b"}
    assert changes(log.handle(PodSeen(low))) == [], "its status is cleared later"
    assert changes(log.handle(PodSeen(nominated(low, "")))) == []
    assert low.uid not in promised(log)


def test_a_later_nomination_takes_the_place_of_an_earlier_one() -> None:
    log = after_nomination()
    effects = log.handle(nominations(2, nominate(P, log.core.seq, node="b")))
    assert changes(effects) == [PodNominated(P.uid, "b", 0, P.key)]
    assert promised(log) == {P.uid: "b"}


def test_denominated_pods_lose_their_nomination() -> None:
    log = after_nomination()
    log.handle(PodSeen(nominated(P, "a")))
    effects = log.handle(nominations(2, loads=(), lose=(P, Q)))
    assert changes(effects) == [NominationGone(P.uid)]
    assert log.handle(PodSeen(nominated(P, "a"))) == [], "its status is cleared later"
    assert promised(log) == {}
    assert changes(log.handle(nominations(3, loads=(), lose=(P,)))) == []


@pytest.mark.parametrize("end", ["deleted", "finished", "bound"])
def test_it_ends_with_the_waiting(end: str) -> None:
    log = after_nomination()
    match end:
        case "deleted":
            effects = log.handle(PodDeleted(P.uid))
        case "finished":
            done = msgspec.structs.replace(P, status=msgspec.structs.replace(P.status, phase="Failed"))
            effects = log.handle(PodSeen(done))
        case _:
            effects = log.handle(PodSeen(bound(P, "b")))
    assert changes(effects)[0] == NominationGone(P.uid)
    assert promised(log) == {}


def test_a_decision_ends_it_also_if_it_comes_to_nothing() -> None:
    log = after_nomination()
    log.handle(PodDeleted(LOW.uid))
    effects = log.handle(commit(2, (P, "a", log.core.seq)))
    assert refusals(effects) == {}
    assert changes(effects)[0] == NominationGone(P.uid)
    effects = log.handle(PodDeleted(P.uid))
    assert changes(effects) == [PodGone(P.uid)]


# What the status shows


def test_a_status_that_does_not_show_it_yet_is_no_news() -> None:
    log = after_nomination()
    assert changes(log.handle(PodSeen(P))) == []
    assert promised(log) == {P.uid: "a"}
    assert changes(log.handle(PodSeen(nominated(P, "a")))) == []
    assert changes(log.handle(PodSeen(P))) == [NominationGone(P.uid)], "another client has cleared it"


def test_an_earlier_nomination_may_show_late() -> None:
    log = after_nomination()
    log.handle(nominations(2, nominate(P, log.core.seq, node="b")))
    for status in ("a", "a", "b"):
        assert changes(log.handle(PodSeen(nominated(P, status)))) == []
        assert promised(log) == {P.uid: "b"}
    assert changes(log.handle(PodSeen(nominated(P, "a")))) == [PodNominated(P.uid, "a", 0, P.key)], "by another client"


def test_a_status_may_nominate_the_pod_to_another_node() -> None:
    log = after_nomination()
    assert changes(log.handle(PodSeen(nominated(P, "b")))) == [PodNominated(P.uid, "b", 0, P.key)]
    assert promised(log) == {P.uid: "b"}


def test_a_nomination_reserves_the_pods_present_load() -> None:
    log = after_nomination()
    larger = nominated(pod("p").request(cpu="3").priority(10).build(), "a")
    assert changes(log.handle(PodSeen(larger))) == [PodNominated(P.uid, "a", 0, P.key)]
    assert log.deltas[-1].loads == [load_of(larger)]


def test_a_status_that_is_cleared_and_set_again_counts() -> None:
    log = after_nomination()
    log.handle(PodSeen(nominated(P, "a")))
    log.handle(nominations(2, loads=(), lose=(P,)))
    assert changes(log.handle(PodSeen(nominated(P, "")))) == []
    assert changes(log.handle(PodSeen(nominated(P, "a")))) == [PodNominated(P.uid, "a", 0, P.key)]
    assert promised(log) == {P.uid: "a"}


# Pods that are gone


def test_a_pod_that_was_deleted_before_it_was_nominated_is_looked_up() -> None:
    log = a_log()
    seen = log.core.seq
    log.handle(PodDeleted(P.uid))
    log.handle(nominations(1, nominate(P, seen, victim(LOW))))
    attempt = log.core.seq
    log.handle(PodDeleted(LOW.uid))
    assert log.core.next_deadline() == LOOK_UP_SECONDS
    assert log.handle(Tick(), LOOK_UP_SECONDS) == [Fence(P.uid, attempt, "default", "p", "")]
    assert log.core.next_deadline() == 2 * LOOK_UP_SECONDS
    assert changes(log.handle(LookedUp(P.uid, attempt, None, nominated="a"), LOOK_UP_SECONDS)) == []
    assert changes(log.handle(LookedUp(P.uid, attempt - 1, None, gone=True), LOOK_UP_SECONDS)) == []
    effects = log.handle(LookedUp(P.uid, attempt, None, gone=True), LOOK_UP_SECONDS)
    assert changes(effects) == [NominationGone(P.uid)]
    assert effects[-1] == ForgottenPod(P.uid, POD_GONE), "pods that wait for room are woken"
    assert log.core.next_deadline() is None


def test_a_lost_nomination_is_revoked_in_time() -> None:
    """1. A pod is nominated. 2. Its cycle ends before the queue hears of that. 3. Room is kept from all like it."""
    log = after_nomination()
    attempt = log.core.seq
    assert log.handle(LookedUp(P.uid, attempt, "b")) == [], "it is bound; the watch will say so"
    effects = log.handle(LookedUp(P.uid, attempt, None), LOOK_UP_SECONDS)
    assert changes(effects) == [NominationGone(P.uid)]
    assert isinstance(effects[-1], ForgottenPod), "pods that wait for room are woken"
    assert promised(log) == {}
    assert log.handle(LookedUp(P.uid, attempt, None), LOOK_UP_SECONDS) == []


def test_a_nomination_that_the_status_shows_no_longer_is_looked_up() -> None:
    """1. The status shows a nomination. 2. It is revoked, and the pod nominated there again. 3. A binder clears the
    status because of 1."""
    nominator, load = Nominator(), load_of(P)
    nominator.observe(P.uid, "a", load, P.key, 0.0)
    nominator.revoke(P.uid)
    nominator.decide(P.uid, Nomination("a", load, P.key, 7), 1.0)
    assert nominator.next_due() is None
    nominator.observe(P.uid, "", load, P.key, 2.0)
    assert [(uid, attempt) for uid, attempt, _ in nominator.due(2.0 + LOOK_UP_SECONDS)] == [(P.uid, 7)]


def test_a_nomination_that_the_status_shows_is_not_looked_up() -> None:
    log = after_nomination()
    log.handle(PodDeleted(LOW.uid))
    log.handle(PodSeen(nominated(P, "a")))
    assert log.core.next_deadline() is None
    log.handle(nominations(2, nominate(P, log.core.seq)))
    assert log.core.next_deadline() is None, "it shows it already"


# Those who are to make way


def loads_of(log: SnapshotLog) -> dict[str, PodLoad]:
    state = log.core.state()
    return {uid: state.loads[pod.load] for node in state.nodes for uid, pod in node.pods.items()}


def test_victims_count_as_terminating_from_the_decision_on() -> None:
    log = after_nomination()
    assert loads_of(log) == {LOW.uid: as_going(LOW)}
    assert changes(log.handle(PodSeen(bound(LOW, "a")))) == [], "it is still told of as before"
    log.handle(PodSeen(bound(pod("low").label(x="y").request(cpu="1").priority(1).build(), "a")))
    assert loads_of(log)[LOW.uid].labels == {"x": "y"}
    assert loads_of(log)[LOW.uid].preempted
    log.handle(PodDeleted(LOW.uid))
    assert log.core.next_deadline() == LOOK_UP_SECONDS


def test_once_it_is_shown_to_go_nothing_is_to_be_remembered() -> None:
    log = after_nomination()
    shown = terminating(bound(LOW, "a"), "now")
    log.handle(PodSeen(shown))
    assert loads_of(log) == {LOW.uid: load_of(shown)}
    log.handle(Evicted(P.uid, 1, "no"))
    assert loads_of(log)[LOW.uid].preempted


def test_victims_that_were_not_evicted_count_as_before() -> None:
    log = after_nomination(LOW, OTHER)
    log.handle(PodSeen(terminating(bound(OTHER, "a"), "now")))
    assert changes(log.handle(Evicted(Q.uid, 1, "no"))) == [], "others are meant"
    effects = log.handle(Evicted(P.uid, 1, "no"))
    assert changes(effects) == [PodPlaced(LOW.uid, "a", 0, LOW.key)]
    assert isinstance(effects[-1], ForgottenPod), "pods that waited for it are woken"
    assert loads_of(log)[LOW.uid] == load_of(LOW)
    assert changes(log.handle(Evicted(P.uid, 1, "no"))) == []


def test_victims_that_do_not_terminate_in_time_count_as_before() -> None:
    log = after_nomination()
    assert log.core.next_deadline() == VICTIM_SECONDS
    assert changes(log.handle(Tick(), VICTIM_SECONDS - 1)) == []
    effects = log.handle(Tick(), VICTIM_SECONDS)
    assert changes(effects) == [PodPlaced(LOW.uid, "a", 0, LOW.key)]
    assert isinstance(effects[-1], ForgottenPod)
    assert loads_of(log) == {LOW.uid: load_of(LOW)}
    assert log.core.next_deadline() == LOOK_UP_SECONDS


def test_a_new_leader_knows_what_the_watch_shows() -> None:
    log = after_nomination()
    core = SnapshotCore(2, log.core.ledger.values(), log.core.answer)
    for event in (NodeSeen(A), NodeSeen(B), PodSeen(bound(LOW, "a")), PodSeen(nominated(P, "a"))):
        core.handle(event, 1.0)
        core.validate()
    assert [(each.uid, each.node) for each in core.state().nominations] == [(P.uid, "a")]
