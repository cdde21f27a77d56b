"""The cycle's part: which pods are classes of their own, and what answers make of offers."""

from flotilla.results import error, unresolvable, unschedulable
from services.cycle.extenders import (
    MAX_OFFERS,
    SLACK,
    ExtenderQuestion,
    Extenders,
    is_judged,
    judged,
    left_out,
    max_judged,
    plain_class,
    question_of,
)
from services.cycle.round.unfit import unfit_of
from shared.cluster.volumes import VolumeDecision
from shared.config.structs import ExtenderConfig, ManagedResource
from shared.extenders.talk import Judgement
from shared.messages.evaluation import Rejections, Summary
from shared.messages.rounds import ClassAnswer, Ladder
from testing.builders import pod

GPU = "example.com/gpu"
PLAIN = pod("p").uid("u").build()
ASKING = pod("p").uid("u").container("c").request({GPU: 1}).build()
MANAGED = (ManagedResource(GPU),)


def test_pods_that_are_judged_are_classes_of_their_own() -> None:
    extending = Extenders([ExtenderConfig("http://x", filter_verb="filter", managed_resources=MANAGED)])
    own = extending.class_of("c1", ASKING)
    assert (is_judged(own), plain_class(own)) == (True, "c1")
    assert own != extending.class_of("c1", pod("q").uid("v").container("c").request({GPU: 1}).build())
    assert extending.class_of("c1", PLAIN) == "c1"
    assert not is_judged("c1")
    assert plain_class("c1") == "c1"


def test_an_extender_that_does_not_judge_changes_no_class() -> None:
    extending = Extenders([ExtenderConfig("http://x", bind_verb="bind", preempt_verb="preempt")])
    assert extending.class_of("c1", PLAIN) == "c1"
    assert Extenders().class_of("c1", ASKING) == "c1"


def test_the_binder_sees_the_pod_where_that_decides_who_binds() -> None:
    assert not Extenders([ExtenderConfig("http://x", bind_verb="bind")]).binder_reads(ASKING)
    extending = Extenders([ExtenderConfig("http://x", bind_verb="bind", managed_resources=MANAGED)])
    assert extending.binder_reads(ASKING)
    assert not extending.binder_reads(PLAIN)


def test_patience_is_that_of_filters_in_turn_and_priorities_at_once() -> None:
    extenders = [
        ExtenderConfig("http://a", filter_verb="f", prioritize_verb="p", http_timeout=1.0),
        ExtenderConfig("http://b", filter_verb="f", http_timeout=2.0),
        ExtenderConfig("http://c", prioritize_verb="p", http_timeout=4.0, managed_resources=MANAGED),
    ]
    asking, plain = ExtenderQuestion("c", ASKING, ("a",)), ExtenderQuestion("c", PLAIN, ("a",))
    assert Extenders(extenders).patience([asking, plain]) == SLACK + 1 + 2 + 4
    assert Extenders(extenders).patience([plain]) == SLACK + 1 + 2 + 1


def test_a_round_takes_as_many_judged_pods_as_messages_hold() -> None:
    assert max_judged(0) == 1, "nothing is known of the cluster's size"
    assert max_judged(1) == MAX_OFFERS
    assert max_judged(10 * MAX_OFFERS) == 1


def offers(*nodes: tuple[str, int]) -> ClassAnswer:
    return ClassAnswer("c", ladder=Ladder([n for n, _ in nodes], [s for _, s in nodes], [7] * len(nodes)))


def test_extenders_are_asked_about_all_that_workers_offer() -> None:
    question = question_of("c", PLAIN, [offers(("b", 2), ("c", 1)), offers(("a", 3))])
    assert question == ExtenderQuestion("c", PLAIN, ("a", "b", "c"))
    assert question_of("c", PLAIN, [offers(), offers()]) is None
    assert question_of("c", PLAIN, [offers(("a", 1)), ClassAnswer("c", failure=error("x"))]) is None
    assert question_of("c", PLAIN, [ClassAnswer("c", pre_filter=unresolvable("x"))]) is None


def test_workers_are_asked_again_where_extenders_leave_out_some_of_several() -> None:
    question = ExtenderQuestion("c", PLAIN, ("a", "b", "c"))
    assert left_out(question, Judgement({"a": 0, "b": 0}))
    assert not left_out(question, Judgement({"a": 0, "b": 0, "c": 0}))
    assert not left_out(question, Judgement({"a": 0})), "one node needs no score"
    assert not left_out(question, Judgement({}))
    assert not left_out(question, Judgement({"a": 0, "b": 0}, failure=error("x")))


def test_offers_are_filtered_and_put_in_their_new_order() -> None:
    ladder = Ladder(
        nodes=["a", "b", "c", "d"],
        scores=[90, 80, 70, 60],
        ties=[1, 2, 3, 4],
        domains={"zone": ["z1", None, "z3", "z4"]},
    )
    found = judged(ladder, Judgement({"a": 0, "c": 20, "d": 40}))
    assert (found.nodes, found.scores, found.ties) == (["d", "c", "a"], [100, 90, 90], [4, 3, 1])
    assert found.domains == {"zone": ["z4", "z3", "z1"]}
    assert found.complete


def test_volumes_go_with_their_nodes() -> None:
    of_a, of_b = VolumeDecision(bindings=[("default/data", "a")]), VolumeDecision(bindings=[("default/data", "b")])
    ladder = Ladder(nodes=["a", "b"], scores=[2, 1], ties=[0, 0], volumes=[of_a, of_b])
    assert judged(ladder, Judgement({"b": 0})).volumes == [of_b]


def test_why_no_node_is_left_is_said_by_plugins_and_extenders() -> None:
    full = Rejections(unschedulable("Too many pods").by("NodeResourcesFit"), 2)
    judgement = Judgement({}, {"a": unschedulable("no GPU"), "b": unschedulable("no GPU"), "c": unresolvable("banned")})
    unfit = unfit_of(Summary(6, plugins={"P": 1}), [full], ["NodeResourcesFit"], judgement)
    assert unfit.message == "0/6 nodes are available: 1 banned, 2 Too many pods, 2 no GPU."
    assert unfit.plugins == ("Extender", "NodeResourcesFit")
    assert (unfit.nodes, unfit.summaries, unfit.potential, unfit.refused) == (6, {"P": 1}, 4, judgement.rejected)
    assert unfit_of(Summary(2), [], [], Judgement()).message == "0/2 nodes are available:"
