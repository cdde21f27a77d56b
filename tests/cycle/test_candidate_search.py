"""A search for victims as the cycle runs it: asks, answers, and what they come to together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.plugin import Plugin, PostFilterPlugin
from flotilla.results import SUCCESS, PostFilterResult, Status, error, unresolvable, unschedulable
from services.cycle.preemption.candidate_search import CandidateSearch, SearchCase
from services.cycle.round.assign import Unfit
from shared.framework.profile import MAX_ASKS, Framework
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.messages.preemption import Candidate, Candidates, ShardFindings, Victim
from shared.plugins.preemption import best_of
from testing.builders import pod
from testing.inprocess.batches import pod_info
from tests.framework.plugins import scripted
from tests.plugins.cluster import framework

BY_NAME = Ties(mode="name")
A, B = unschedulable("a"), unschedulable("b")
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def profile(*around: Plugin) -> Framework:
    """DefaultPreemption, after the plugins `A...` and before the plugins `B...`."""
    made = framework("NodeResourcesFit", "DefaultPreemption")
    others = [plugin for plugin in around if isinstance(plugin, PostFilterPlugin)]
    made.post_filter[:0] = [plugin for plugin in others if plugin.name < "B"]
    made.post_filter += [plugin for plugin in others if plugin.name >= "B"]
    return made


def case(name: str = "c", summaries: dict[str, object] | None = None, potential: int = 1) -> SearchCase:
    unfit = Unfit("", (), summaries=summaries or {}, potential=potential)
    return SearchCase(name, [pod_info(pod(name).build(), name)], unfit)


def finding(name: str = "c", nodes: int = 1, **more: Any) -> ShardFindings:
    return ShardFindings(name, **{"summary": Summary(nodes=nodes), **more})


def candidate(node: str, *priorities: int) -> Candidate:
    return Candidate(node, [Victim(f"{node}-{i}", f"default/{node}-{i}", p) for i, p in enumerate(priorities)])


def answer(search: CandidateSearch, worker: str, *findings: ShardFindings) -> bool:
    return search.take(Candidates(worker, 1, search.number, search.ask, 0, [0], list(findings)))


def came_to(*findings: ShardFindings, made: Framework | None = None) -> Any:
    """The outcome where each shard finds this."""
    search, made = CandidateSearch(1, [case()]), made or profile()
    for i, of_shard in enumerate(findings):
        assert answer(search, f"worker-{i}", of_shard)
    assert search.gather({"default-scheduler": made})
    return search.outcome("c", made, BY_NAME)


def test_the_best_candidate_of_all_shards_is_chosen() -> None:
    one, two, three = candidate("n1", 5), candidate("n2", 3), candidate("n3", 3)
    found = came_to(finding(candidates=[one]), finding(candidates=[three]), finding(candidates=[two]))
    assert found.best == (two, three)
    assert found.candidates == (one, two, three)
    assert (found.nominated, found.victims) == ("n2", tuple(two.victims))
    assert (found.message, found.failed, found.again) == ("", False, False)


def test_of_equal_candidates_any_is_taken_but_the_same_in_every_run() -> None:
    taken = set()
    for i in range(20):
        waiting = pod(f"p{i}").uid(f"p{i}").build()
        unfit = Unfit("", (), potential=2)
        nodes = set()
        for order in (("n1", "n2"), ("n2", "n1")):
            search = CandidateSearch(1, [SearchCase("c", [pod_info(waiting, "c")], unfit)])
            answer(search, "w", finding(candidates=[candidate(node, 1) for node in order]))
            search.gather({"default-scheduler": profile()})
            nodes.add(search.outcome("c", profile(), Ties()).nominated)
        assert len(nodes) == 1
        taken |= nodes
    assert taken == {"n1", "n2"}


def test_what_does_not_help_is_counted_over_all_shards() -> None:
    cpu = unschedulable("Insufficient cpu")
    found = came_to(
        finding(nodes=3, rejections=[Rejections(cpu, 2)]), finding(nodes=2, rejections=[Rejections(cpu, 1)])
    )
    assert found.message == f"preemption: 0/5 nodes are available: 2 {NOT_HELPFUL}, 3 Insufficient cpu."
    assert found.nominated == ""


def test_one_shard_knows_that_the_pod_is_not_to_preempt() -> None:
    found = came_to(finding(candidates=[candidate("n1", 1)]), finding(ineligible="not eligible."))
    assert found.message == "preemption: not eligible."
    assert (found.nominated, found.candidates) == (None, ())


def test_faults_on_single_nodes_count_only_where_nothing_was_found() -> None:
    assert came_to(finding(faults=["f"]), finding(candidates=[candidate("n1", 1)])).nominated == "n1"
    found = came_to(finding(faults=["f"]), finding(faults=["f", "g"]))
    assert (found.message, found.failed) == ("preemption: [f, g]", True)
    assert came_to(finding(faults=["f"])).message == "preemption: f"


def test_a_plugin_that_fails_ends_the_attempt() -> None:
    found = came_to(finding(), finding(failure=error("broken")))
    assert (found.message, found.failed) == ("broken", True)


def test_summaries_that_do_not_merge_with_each_other_end_the_attempt() -> None:
    made = framework("ImageLocality", "DefaultPreemption")
    parts = [Summary(nodes=1, plugins={"ImageLocality": {"nodes": 1, "images": {"i": n}}}) for n in (1, "many")]
    found = came_to(*(finding(summary=part) for part in parts), made=made)
    assert found.failed
    assert "merging the summaries" in found.message


def test_a_pod_that_fits_meanwhile_is_decided_again() -> None:
    assert came_to(finding(), finding(summary=Summary(nodes=1, feasible=1))).again


# With other PostFilter plugins


def said(**status: Status) -> dict[str, PostFilterResult]:
    return {name: PostFilterResult(each) for name, each in status.items()}


AROUND = (scripted("A", []), scripted("B", []))


def test_all_reasons_are_told_in_the_order_of_the_profile() -> None:
    findings = [finding(nodes=2, others=said(A=A, B=B)), finding(nodes=1, others=said(A=A, B=unschedulable("b2")))]
    found = came_to(*findings, made=profile(*AROUND))
    assert found.message == f"a, preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}., b, b2"


def test_the_message_is_unchanged_if_preemption_helps() -> None:
    found = came_to(finding(others=said(A=A, B=B), candidates=[candidate("n1", 1)]), made=profile(*AROUND))
    assert (found.message, found.nominated) == ("", "n1")


@pytest.mark.parametrize(("status", "failed"), [(error("not found"), True), (unresolvable("never"), False)])
def test_a_final_answer_is_all_that_is_told(status: Status, failed: bool) -> None:
    found = came_to(
        finding(others=said(A=A, B=B), candidates=[candidate("n1", 1)]),
        finding(others=said(A=status)),
        made=profile(*AROUND),
    )
    assert (found.message, found.failed, found.nominated) == (status.message, failed, None)


def test_another_plugin_may_help() -> None:
    first = {"A": PostFilterResult(SUCCESS, "n7")}
    found = came_to(finding(others=first), finding(others=said(A=A, B=B)), made=profile(*AROUND))
    assert (found.message, found.nominated, found.best) == ("", "n7", ())


# The protocol


def test_each_worker_is_heard_once_and_about_all_that_was_asked() -> None:
    search = CandidateSearch(3, [case("c"), case("d")])
    ask = search.message(2, 9)
    assert (ask.epoch, ask.search, ask.ask, ask.min_seq) == (2, 3, 1, 9)
    assert [(each.class_id, each.pod.name) for each in ask.classes] == [("c", "c"), ("d", "d")]
    assert not answer(search, "w", finding("c"))
    assert answer(search, "w", finding("c"), finding("d"))
    assert not answer(search, "w", finding("c"), finding("d"))
    assert not search.take(Candidates("x", 2, 2, 1, 0, [1], [finding("c"), finding("d")]))
    assert set(search.answered) == {"w"}


def test_what_was_judged_by_an_old_summary_is_asked_again() -> None:
    made = framework("InterPodAffinity", "DefaultPreemption")
    known: dict[str, object] = {"InterPodAffinity": None}
    search = CandidateSearch(1, [case("c"), case("d", known)])
    now = Summary(nodes=1, plugins=known)
    assert answer(search, "w", finding("c", summary=now, potential=4), finding("d", summary=now))
    assert not search.gather({"default-scheduler": made})
    assert search.ask == 2
    [again] = search.message(1, 0).classes
    assert (again.class_id, again.summaries, again.potential) == ("c", known, 4)
    assert answer(search, "w", finding("c", summary=now, candidates=[candidate("n1", 1)]))
    assert search.gather({"default-scheduler": made})
    assert search.outcome("c", made, BY_NAME).nominated == "n1"
    assert not search.outcome("d", made, BY_NAME).again


def test_pods_are_decided_again_if_their_summary_keeps_changing() -> None:
    made = framework("InterPodAffinity", "DefaultPreemption")
    search = CandidateSearch(1, [case()])
    for i in range(MAX_ASKS):
        plugins: dict[str, object] = {"InterPodAffinity": i}
        assert answer(search, "w", finding(summary=Summary(nodes=1, plugins=plugins), candidates=[candidate("n1", 1)]))
        assert search.gather({"default-scheduler": made}) is (i == MAX_ASKS - 1)
    assert search.outcome("c", made, BY_NAME).again


def test_when_the_shards_move_everything_is_asked_again() -> None:
    search = CandidateSearch(1, [case("c"), case("d")])
    answer(search, "w", finding("c"), finding("d"))
    search.start_over()
    assert search.answered == {}
    assert search.ask == 2
    assert not search.take(Candidates("w", 1, 1, 1, 0, [0], [finding("c"), finding("d")]))
    assert {each.class_id for each in search.message(1, 0).classes} == {"c", "d"}


def test_extenders_may_narrow_the_candidates() -> None:
    search = CandidateSearch(1, [case()])
    one, two = candidate("n1", 1), candidate("n2", 5)
    answer(search, "w", finding(candidates=[one, two]))
    assert search.gather({"default-scheduler": profile()})
    assert search.candidates("c") == [one, two]
    search.narrow("c", [two])
    assert search.outcome("c", profile(), BY_NAME).best == (two,)
    search.narrow("c", [])
    found = search.outcome("c", profile(), BY_NAME)
    assert found.message == "preemption: no candidate node for preemption"
    assert found.nominated is None


def protected(node: str, left: int, *, terminating: bool = False) -> Candidate:
    """A victim of priority 1, about which there is one budget for pods of all nodes."""
    own = Victim(f"{node}-v", f"default/{node}-v", 1, violates=left < 0, terminating=terminating, budgets={"b": left})
    return Candidate(node, [own])


def shares(search: CandidateSearch, *candidates: Candidate, pods: int) -> list[tuple[str, int]]:
    """For each pod of the class the node that it gets, and how many victims there violate a budget."""
    answer(search, "w", finding(candidates=list(candidates)))
    assert search.gather({"default-scheduler": profile()})
    first = search.outcome("c", profile(), BY_NAME)
    found = search.share_out(first, [search.cases["c"].pods[0]] * pods, (), BY_NAME)
    return [(each.nominated or "", sum(victim.violates for victim in each.victims)) for each in found]


def test_budgets_count_down_between_the_pods_of_a_search() -> None:
    """One more disruption is allowed for: the second pod rather takes the node of a more important pod."""
    found = shares(CandidateSearch(1, [case()]), protected("n1", 0), protected("n2", 0), candidate("n3", 9), pods=3)
    assert found == [("n1", 0), ("n3", 0), ("n2", 1)]


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1, max_size=8), st.integers(1, 10))
def test_each_pod_gets_one_of_the_cheapest_nodes_that_are_left(victims: list[list[int]], pods: int) -> None:
    candidates = [candidate(f"n{i}", *priorities) for i, priorities in enumerate(victims)]
    waiting = [pod_info(pod(f"p{i}").uid(f"p{i}").build(), "c") for i in range(pods)]
    search = CandidateSearch(1, [SearchCase("c", waiting, Unfit("", (), potential=1))])
    answer(search, "w", finding(candidates=candidates))
    assert search.gather({"default-scheduler": profile()})
    found = search.share_out(search.outcome("c", profile(), Ties()), waiting, (), Ties())
    assert len(found) == min(pods, len(candidates))
    left = list(candidates)
    for share in found:
        assert share.best == tuple(best_of(left))
        (taken,) = [each for each in share.best if each.node == share.nominated]
        assert share.victims == tuple(taken.victims)
        left.remove(taken)


def test_terminating_victims_use_no_budget() -> None:
    found = shares(CandidateSearch(1, [case()]), protected("n1", 0, terminating=True), protected("n2", 0), pods=2)
    assert found == [("n1", 0), ("n2", 0)]


def test_budgets_count_down_between_the_classes_of_a_search() -> None:
    search = CandidateSearch(1, [case("c"), case("d")])
    answer(
        search,
        "w",
        finding("c", candidates=[protected("n1", 0)]),
        finding("d", candidates=[protected("n2", 0), candidate("n3", 9)]),
    )
    assert search.gather({"default-scheduler": profile()})
    search.share_out(search.outcome("c", profile(), BY_NAME), search.cases["c"].pods, (), BY_NAME)
    assert search.outcome("d", profile(), BY_NAME).nominated == "n3"
