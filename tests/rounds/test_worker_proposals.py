"""Worker: answering what it would propose."""

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from flotilla.plugin import (
    SUCCESS,
    BatchFilter,
    ClassState,
    Index,
    Mask,
    NodeInfo,
    NodeView,
    PluginError,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Scores,
    Status,
    SummaryPlugin,
)
from flotilla.results import Code
from services.worker import proposer
from services.worker.core import WorkerCore
from services.worker.events import Event
from shared.config.points import ExtensionPoint
from shared.framework.failures import MAX_UNEXPECTED
from shared.messages.evaluation import Summary, Ties
from shared.messages.rounds import ClassAnswer, ClassAsk
from shared.messages.state import PodGone
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod
from testing.builders import expr, node, pod
from tests.framework.plugins import ReadsNothing
from tests.rounds.support import (
    Moody,
    answers,
    ask_for,
    delta,
    framework_with,
    placed,
    proposals,
    propose,
    small_node,
    small_pod,
    state,
    worker,
)

A, B = small_node("a"), small_node("b", cpu=2)
P = small_pod("p")


def loaded(*nodes: Node, **options: Any) -> WorkerCore:
    core = worker(**options)
    core.handle(state(1, *nodes), 0.0)
    return core


def ask(core: WorkerCore, *asks: ClassAsk, number: int = 1) -> dict[str, ClassAnswer]:
    return answers(core.handle(propose(*asks, round_=number), 0.0))


def test_it_says_who_answers_what_and_as_of_when() -> None:
    core = loaded(A, shards=[0, 2], count=3)
    message = proposals(core.handle(propose(ask_for(P), round_=4, ask=2, epoch=3), 0.0))
    assert (message.worker, message.epoch, message.round, message.ask, message.seq) == ("w", 3, 4, 2, 1)
    assert message.shards == [0, 2]


def test_a_ladder_is_the_greedy_order() -> None:
    (answer,) = ask(loaded(A, B), ask_for(P, count=4)).values()
    assert answer.ladder.nodes[0] == "a"
    assert sorted(answer.ladder.nodes) in (["a", "a", "a", "b"], ["a", "a", "b", "b"])
    assert answer.summary.feasible == answer.summary.nodes == 2
    assert answer.ladder.ties == [0] * 4
    assert not answer.ladder.complete


def test_a_ladder_that_ends_with_the_room_says_so() -> None:
    (answer,) = ask(loaded(A, B), ask_for(P, count=9)).values()
    assert sorted(answer.ladder.nodes) == ["a"] * 4 + ["b"] * 2
    assert answer.ladder.complete


def test_why_no_node_fits_is_counted() -> None:
    giant = small_pod("giant", cpu="64")
    (answer,) = ask(loaded(A, B, node("c").capacity(cpu=64).taint("t").build()), ask_for(giant)).values()
    counted = {(part.status.plugin, part.status.reasons): part.nodes for part in answer.rejections}
    assert counted == {
        ("NodeResourcesFit", ("Insufficient cpu",)): 2,
        ("TaintToleration", ("node(s) had untolerated taint(s)",)): 1,
    }
    assert answer.ladder.nodes == [] and answer.ladder.complete


def test_asked_again_it_answers_again() -> None:
    core = loaded(A, B)
    once = core.handle(propose(ask_for(P)), 0.0)
    assert core.handle(propose(ask_for(P)), 0.0) == once


@pytest.mark.parametrize(
    "old",
    [
        propose(ask_for(P), round_=4, ask=2, epoch=2),
        propose(ask_for(P), round_=5, ask=1, epoch=2),
        propose(ask_for(P), round_=9, ask=9, epoch=1),
    ],
)
def test_what_is_asked_out_of_date_is_refused(old: Event) -> None:
    core = loaded(A)
    core.handle(propose(ask_for(P), round_=5, ask=2, epoch=2), 0.0)
    assert core.handle(old, 0.0) == []
    assert len(core.refused) == 1


def test_a_new_cycle_leader_counts_its_rounds_again_from_one() -> None:
    core = loaded(A)
    core.handle(propose(ask_for(P), round_=5, ask=2, epoch=2), 0.0)
    assert core.handle(propose(ask_for(P), round_=1, ask=1, epoch=3), 0.0)
    assert not core.refused


def test_a_class_that_it_does_not_know_has_to_come_with_its_pod() -> None:
    core = loaded(A)
    bare = ClassAsk("p", DEFAULT_SCHEDULER, 1)
    assert ask(core, bare) == {"p": ClassAnswer("p", unknown=True)}
    known = ask(core, ask_for(P), number=2)
    assert ask(core, bare, number=3) == known


def test_a_profile_that_does_not_exist_fails_its_classes_only() -> None:
    stray = pod("stray").scheduler("nobody").build()
    got = ask(loaded(A), ask_for(stray), ask_for(P))
    assert got["p"].failure is None and got["p"].ladder.nodes == ["a"]
    failure = got["stray"].failure
    assert failure is not None and failure.code is Code.ERROR
    assert failure.message == "there is no profile 'nobody'"


def test_a_pod_that_names_its_nodes_has_no_others_looked_at() -> None:
    nowhere = pod("p").require_node(expr("x", "In", "1")).node_selector(x="2").request(cpu=1).build()
    (answer,) = ask(loaded(A, B), ask_for(nowhere)).values()
    assert answer.pre_filter is None and answer.summary.feasible == 0


def test_changed_ties_make_it_start_over() -> None:
    core = loaded(*(small_node(f"n{i}") for i in range(12)))
    first = {
        seed: answers(core.handle(propose(ask_for(P), round_=i + 1, ties=Ties(seed=seed)), 0.0))["p"].ladder.nodes
        for i, seed in enumerate([1, 2, 3, 4, 1])
    }
    assert len({tuple(nodes) for nodes in first.values()}) > 1
    again = core.handle(propose(ask_for(P), round_=9, ties=Ties(seed=1)), 0.0)
    assert answers(again)["p"].ladder.nodes == first[1]


def test_it_judges_on_the_guess_it_is_given() -> None:
    """A soft taint counts by how many the most tainted node has, which may be another shard's."""
    soft = node("a").capacity(cpu=4).taint("t", effect="PreferNoSchedule").build()
    core = loaded(soft, node("b").capacity(cpu=4).taint("u").build())
    alone = ask(core, ask_for(P.__class__(metadata=P.metadata, spec=pod("p").build().spec)))["p"]
    assert alone.summary.ranges["TaintToleration"] == (1, 1)
    guess = Summary(plugins=alone.summary.plugins, ranges={**alone.summary.ranges, "TaintToleration": (0, 4)})
    told = ask(core, ClassAsk("p", DEFAULT_SCHEDULER, 1, None, guess), number=2)["p"]
    assert told.ladder.scores[0] == alone.ladder.scores[0] + 3 * 75
    assert told.summary == alone.summary


# Eviction


def test_the_classes_not_asked_about_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "CLASS_MEMORY", 0)
    core = loaded(A, B)
    x, y = small_pod("x"), small_pod("y", cpu="2")
    first = ask(core, ask_for(x), ask_for(y))
    assert set(first) == {"x", "y"}
    ask(core, ask_for(P), number=2)
    gone = ask(core, *(ClassAsk(name, DEFAULT_SCHEDULER, 1) for name in ("p", "x")), number=3)
    assert [gone["p"].unknown, gone["x"].unknown] == [False, True]
    assert ask(core, ask_for(x), ask_for(y), number=4) == first


def test_a_class_in_a_slot_that_another_one_left_is_judged_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "CLASS_MEMORY", 0)
    core, fresh = loaded(A, B), loaded(A, B)
    for number, size in enumerate(["1", "3", "9", "2"], start=1):
        what = small_pod(f"size-{size}", cpu=size)
        assert ask(core, ask_for(what, count=3), number=number)
        core.handle(placed(number + 1, small_pod(f"filler-{number}", cpu="100m"), "a"), 0.0)
        fresh.handle(placed(number + 1, small_pod(f"filler-{number}", cpu="100m"), "a"), 0.0)
    last = small_pod("size-2", cpu="2")
    assert ask(core, ask_for(last, count=3), number=9) == ask(fresh, ask_for(last, count=3), number=9)


# Plugins that raise


def moody(*nodes: Node) -> WorkerCore:
    return loaded(*nodes, frameworks=framework_with(Moody, ExtensionPoint.FILTER))


def test_a_plugin_that_raises_fails_only_its_class() -> None:
    core = moody(A, B)
    got = ask(core, ask_for(small_pod("good")), ask_for(small_pod("bad", mood="bad")), ask_for(small_pod("fine")))
    failure = got["bad"].failure
    assert failure is not None
    assert failure.message == """running "Moody" plugin: filter: ZeroDivisionError('it is one of those days')"""
    assert failure.plugin == "Moody"
    for name in ("good", "fine"):
        assert got[name].failure is None
        assert got[name].ladder.nodes == ["a"]


@pytest.mark.parametrize("order", [("good", "bad"), ("bad", "good")])
def test_a_plugin_that_begins_to_raise_leaves_the_others_counts_right(order: tuple[str, str]) -> None:
    """1. Two classes are judged together. 2. A node that was full gets room. 3. On it the plugin fails for one."""
    full, mood = small_pod("full", cpu="4"), {"good": "", "bad": "bad-when-loaded"}
    asked = [ask_for(small_pod(name, mood=mood[name])) for name in order]
    core = moody(A, B)
    core.handle(placed(2, full, "a"), 0.0)
    core.handle(placed(3, small_pod("other", cpu="0"), "a"), 0.0)
    assert ask(core, *asked)["good"].summary.feasible == 1
    core.handle(delta(4, PodGone(full.uid)), 0.0)
    got = ask(core, *asked, number=2)
    assert got["bad"].failure is not None
    assert got["good"].failure is None
    assert got["good"].summary.feasible == 2
    core.handle(delta(5, PodGone("default/other")), 0.0)
    got = ask(core, *asked, number=3)
    assert {name: answer.summary.feasible for name, answer in got.items()} == {"good": 2, "bad": 2}
    assert got["bad"].failure is None


def test_a_plugin_that_raises_does_not_stop_an_explanation() -> None:
    core = moody(A)
    failure = core.explain(ask_for(small_pod("bad", mood="bad")))[0].failure
    assert failure is not None and 'running "Moody" plugin: filter' in failure.message


def test_before_anything_is_loaded_an_explanation_says_so() -> None:
    core = worker()
    core.start(0.0)
    failure = core.explain(ask_for(P))[0].failure
    assert failure is not None and failure.message == "w has not loaded its nodes yet"


class Faulty(ReadsNothing, PreFilterPlugin, BatchFilter, PreScorePlugin, ScorePlugin, SummaryPlugin[int, None]):
    """Raises in the method that the pod's label names."""

    name = "Faulty"

    def signature(self, pod: Pod) -> str:
        return pod.metadata.labels.get("raises-in", "")

    def _ask(self, state: ClassState, method: str) -> None:
        if self.signature(state.pod) == method:
            raise RuntimeError("on purpose")

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        self._ask(state, "pre_filter")
        return PreFilterResult()

    def filter_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> None:
        for each in states:
            self._ask(each, "filter")

    def pre_score(self, state: ClassState) -> Status:
        self._ask(state, "pre_score")
        return SUCCESS

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        self._ask(state, "score")
        return np.zeros(len(nodes), dtype=np.int64)

    def scores_alike(self, state: ClassState) -> bool:
        self._ask(state, "scores_alike")
        return False

    def summarize(self, state: ClassState, nodes: NodeView) -> int:
        self._ask(state, "summarize")
        return len(nodes)

    def merge(self, one: int, other: int) -> int:
        return one + other

    def summarize_feasible(self, state: ClassState, nodes: NodeView, feasible: Mask) -> None:
        self._ask(state, "summarize_feasible")

    def topology(self, state: ClassState, nodes: NodeView) -> None:
        self._ask(state, "topology")


METHODS = ("pre_filter", "filter", "pre_score", "score", "scores_alike", "summarize", "summarize_feasible", "topology")
POINTS = (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER, ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE)


@pytest.mark.parametrize("method", METHODS)
def test_the_message_of_a_failed_pod_names_the_plugin_and_the_method_that_raised(method: str) -> None:
    core = loaded(A, B, frameworks=framework_with(Faulty, *POINTS))
    bad, good = small_pod("bad", **{"raises-in": method}), small_pod("good")
    got = ask(core, ask_for(bad, count=3), ask_for(good, count=3))
    failure = got["bad"].failure
    assert failure is not None and failure.plugin == "Faulty"
    assert failure.message == f"""running "Faulty" plugin: {method}: RuntimeError('on purpose')"""
    assert got["good"].failure is None and got["good"].ladder.nodes


def raised(core: WorkerCore) -> list[str]:
    return ["".join(traceback.format_exception(cause)) for _, cause in core.failures.unexpected()]


def test_an_exception_of_a_plugin_is_kept_for_the_log_once_however_many_pods_it_fails() -> None:
    core = moody(A, B)
    for number in range(5):
        ask(core, *(ask_for(small_pod(f"bad-{number}-{i}", mood="bad")) for i in range(4)), number=number + 1)
    (text,) = raised(core)
    assert "in filter_node" in text and "ZeroDivisionError: it is one of those days" in text
    assert raised(core) == []


class Chatty(Moody):
    """Each of its exceptions has another text."""

    name = "Chatty"

    def signature(self, pod: Pod) -> str:
        return pod.name

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        raise KeyError(state.pod.name)


def test_of_many_exceptions_few_are_kept_and_those_of_one_line_are_one_to_the_log() -> None:
    core = loaded(A, frameworks=framework_with(Chatty, ExtensionPoint.FILTER))
    ask(core, *(ask_for(small_pod(f"p{i}")) for i in range(3 * MAX_UNEXPECTED)))
    places = [place for place, _ in core.failures.unexpected()]
    assert len(places) == MAX_UNEXPECTED
    assert len(set(places)) == 1


class Deliberate(Moody):
    """Gives its pods a message of its own."""

    name = "Deliberate"

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        raise PluginError("no licence is left")


def test_a_message_that_a_plugin_gives_on_purpose_stands_as_it_is_and_needs_no_traceback() -> None:
    core = loaded(A, frameworks=framework_with(Deliberate, ExtensionPoint.FILTER))
    failure = ask(core, ask_for(P))["p"].failure
    assert failure is not None and failure.message == "no licence is left"
    assert raised(core) == []


class Unprepared(Moody):
    """Its state cannot be computed for one pod."""

    name = "Unprepared"

    def cache_key(self, state: Any) -> str:
        if state.pod.name == "bad":
            raise KeyError("no such thing")
        return ""


def test_a_pod_whose_class_cannot_be_prepared_fails_alone() -> None:
    core = loaded(A, frameworks=framework_with(Unprepared, ExtensionPoint.FILTER))
    wanted: list[Pod] = [small_pod("bad"), small_pod("good")]
    got = ask(core, *map(ask_for, wanted))
    assert got["good"].ladder.nodes == ["a"]
    failure = got["bad"].failure
    assert failure is not None and failure.plugin == "Unprepared"
    assert failure.message == """running "Unprepared" plugin: cache_key: KeyError('no such thing')"""
