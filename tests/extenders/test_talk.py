"""What is asked of extenders, and what is made of their answers: no server needed."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from flotilla.results import Code, Status, error, unresolvable, unschedulable
from shared.config.structs import ExtenderConfig
from shared.extenders.talk import ExtenderFailed, Judgement, Subject, Talk, judge, name_of, preempt
from shared.extenders.wire import ExtenderVictim, Victims

T = TypeVar("T")

SUBJECT = Subject(
    b'{"metadata":{"name":"p"}}', lambda names: [b'{"metadata":{"name":"%b"}}' % n.encode() for n in names]
)
FIRST = ExtenderConfig("http://first/", filter_verb="filter", node_cache_capable=True)
SECOND = ExtenderConfig("http://second", filter_verb="filter", node_cache_capable=True)
SCORER = ExtenderConfig("http://scorer", prioritize_verb="prioritize", weight=3, node_cache_capable=True)
OTHER_SCORER = ExtenderConfig("http://other", prioritize_verb="prioritize", weight=1, node_cache_capable=True)
LENIENT = ExtenderConfig("http://lenient", filter_verb="filter", node_cache_capable=True, ignorable=True)
DOWN = ExtenderFailed("it is down")


def hold(talk: Talk[T], *answers: Mapping[str, object]) -> tuple[T, list[dict[str, Any]]]:
    """Answers step by step, by the extender's URL; what comes of it, and every request by extender."""
    asked: list[dict[str, Any]] = []
    try:
        calls = next(talk)
        for step in answers:
            assert {call.extender.url_prefix for call in calls} == set(step)
            asked += [{"of": call.extender.url_prefix, **msgspec.json.decode(call.body)} for call in calls]
            said = [step[call.extender.url_prefix] for call in calls]
            calls = talk.send([s if isinstance(s, ExtenderFailed) else msgspec.json.encode(s) for s in said])
    except StopIteration as end:
        assert len(asked) >= len(answers)
        result: T = end.value
        return result, asked
    raise AssertionError(f"asks more: {calls}")


def names_of(asked: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(each["of"], each["NodeNames"]) for each in asked]


def by_extender(status: Status) -> Status:
    return status.by("Extender")


def test_each_filter_is_asked_about_what_the_one_before_left() -> None:
    judgement, asked = hold(
        judge([FIRST, SECOND], SUBJECT, ["a", "b", "c"]),
        {"http://first/": {"NodeNames": ["c", "b"], "FailedNodes": {"a": "not here"}}},
        {"http://second": {"NodeNames": ["c"], "FailedAndUnresolvableNodes": {"b": "never"}}},
    )
    assert names_of(asked) == [("http://first/", ["a", "b", "c"]), ("http://second", ["b", "c"])]
    assert judgement.added == {"c": 0}
    assert judgement.rejected == {
        "a": by_extender(unschedulable("not here")),
        "b": by_extender(unresolvable("never")),
    }


def test_where_no_node_is_left_no_other_extender_is_asked() -> None:
    judgement, asked = hold(judge([FIRST, SECOND, SCORER], SUBJECT, ["a"]), {"http://first/": {}})
    assert len(asked) == 1
    assert judgement == Judgement()


def test_that_nothing_helps_weighs_more() -> None:
    both = {"FailedNodes": {"a": "full"}, "FailedAndUnresolvableNodes": {"a": "never", "stranger": "x"}}
    judgement, _ = hold(judge([FIRST], SUBJECT, ["a"]), {"http://first/": both})
    assert judgement.rejected == {"a": by_extender(unresolvable("never"))}


def test_priorities_are_asked_for_at_the_same_time_and_weighed() -> None:
    judgement, asked = hold(
        judge([SCORER, OTHER_SCORER], SUBJECT, ["a", "b"]),
        {
            "http://scorer": [{"Host": "a", "Score": 10}, {"Host": "stranger", "Score": 10}],
            "http://other": [{"Host": "a", "Score": 1}, {"Host": "b", "Score": 2}],
        },
    )
    assert names_of(asked) == [("http://scorer", ["a", "b"]), ("http://other", ["a", "b"])]
    assert judgement.added == {"a": 10 * 3 * 10 + 1 * 10, "b": 2 * 10}


def test_a_single_node_needs_no_priority() -> None:
    judgement, asked = hold(judge([FIRST, SCORER], SUBJECT, ["a", "b"]), {"http://first/": {"NodeNames": ["b"]}})
    assert len(asked) == 1
    assert judgement.added == {"b": 0}


def test_a_filter_that_fails_fails_the_attempt() -> None:
    judgement, _ = hold(judge([FIRST, SECOND], SUBJECT, ["a"]), {"http://first/": DOWN})
    assert judgement.failure == error("it is down")
    judgement, _ = hold(judge([FIRST], SUBJECT, ["a"]), {"http://first/": {"Error": "no GPU driver"}})
    assert judgement.failure == error("no GPU driver")


def test_a_filter_that_may_fail_has_no_say_then() -> None:
    judgement, _ = hold(
        judge([FIRST, LENIENT], SUBJECT, ["a", "b"]), {"http://first/": {"NodeNames": ["a"]}}, {"http://lenient": DOWN}
    )
    assert (judgement.added, judgement.failure, judgement.troubles) == ({"a": 0}, None, ("it is down",))


def test_a_filter_that_names_strangers_has_failed() -> None:
    judgement, _ = hold(judge([FIRST], SUBJECT, ["a"]), {"http://first/": {"NodeNames": ["x", "a"]}})
    assert judgement.failure == error(
        'extender "http://first/" claims a filtered node "x" which is not found in the input node list'
    )


def test_an_answer_that_cannot_be_read_is_a_failure_that_says_whose() -> None:
    judgement, _ = hold(judge([FIRST], SUBJECT, ["a"]), {"http://first/": ["a"]})
    assert judgement.failure is not None
    assert judgement.failure.code is Code.ERROR
    assert judgement.failure.message.startswith("extender http://first/: filter: the answer: Expected `object")


def test_priorities_never_fail_an_attempt() -> None:
    judgement, _ = hold(
        judge([SCORER, OTHER_SCORER], SUBJECT, ["a", "b"]),
        {"http://scorer": {"no": "list"}, "http://other": [{"Host": "b", "Score": 1}]},
    )
    assert (judgement.added, judgement.failure) == ({"a": 0, "b": 10}, None)
    assert len(judgement.troubles) == 1


def test_who_knows_no_nodes_is_sent_them() -> None:
    extender = ExtenderConfig("http://plain", filter_verb="filter", prioritize_verb="prioritize")
    kept = {"Nodes": {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}}
    judgement, asked = hold(judge([extender], SUBJECT, ["a", "b", "c"]), {"http://plain": kept}, {"http://plain": None})
    assert [[node["metadata"]["name"] for node in each["Nodes"]["items"]] for each in asked] == [
        ["a", "b", "c"],
        ["a", "b"],
    ]
    assert [each["NodeNames"] for each in asked] == [None, None]
    assert judgement.added == {"a": 0, "b": 0}


def test_a_password_in_a_url_is_not_told() -> None:
    assert name_of(ExtenderConfig("https://me:secret@host:1/x")) == "https://host:1/x"
    assert name_of(ExtenderConfig("http://host/x@y")) == "http://host/x@y"


# Preemption

U1, U2, U3 = (ExtenderVictim(f"u{i}", b'{"metadata":{"uid":"u%d"}}' % i) for i in (1, 2, 3))
CANDIDATES = {"a": Victims((U1, U2), 1), "b": Victims((U3,))}
PREEMPTS = ExtenderConfig("http://preempts", preempt_verb="preempt", node_cache_capable=True)
LENIENTLY = ExtenderConfig("http://leniently", preempt_verb="preempt", ignorable=True)


def said(**victims: list[str]) -> dict[str, object]:
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 7} for node, uids in victims.items()
        }
    }


def test_candidates_are_reduced_one_extender_after_the_other() -> None:
    reduced, asked = hold(
        preempt([PREEMPTS, LENIENTLY], b"{}", CANDIDATES),
        {"http://preempts": said(b=["u3"], a=["u2"])},
        {"http://leniently": said(a=["u2"], b=[])},
    )
    assert reduced.candidates == {"a": Victims((U2,), 7)}
    assert asked[0]["NodeNameToMetaVictims"]["a"] == {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}
    assert asked[1]["NodeNameToVictims"]["a"] == {"Pods": [{"metadata": {"uid": "u2"}}], "NumPDBViolations": 7}
    assert list(asked[1]["NodeNameToVictims"]) == ["a", "b"]


def test_where_no_candidate_is_left_no_other_extender_is_asked() -> None:
    reduced, asked = hold(preempt([PREEMPTS, LENIENTLY], b"{}", CANDIDATES), {"http://preempts": {}})
    assert len(asked) == 1
    assert (reduced.candidates, reduced.failure) == ({}, None)


def test_an_extender_without_the_verb_is_not_asked() -> None:
    reduced, asked = hold(preempt([FIRST], b"{}", CANDIDATES))
    assert (reduced.candidates, asked) == (CANDIDATES, [])


def test_preemption_fails_with_an_extender_unless_it_may_fail() -> None:
    reduced, _ = hold(preempt([PREEMPTS], b"{}", CANDIDATES), {"http://preempts": DOWN})
    assert reduced.failure == error("it is down")
    reduced, _ = hold(preempt([LENIENTLY], b"{}", CANDIDATES), {"http://leniently": DOWN})
    assert (reduced.candidates, reduced.troubles) == (CANDIDATES, ("it is down",))


def test_victims_that_are_none_are_a_failure() -> None:
    reduced, _ = hold(preempt([PREEMPTS], b"{}", CANDIDATES), {"http://preempts": said(a=["u3"])})
    assert reduced.failure == error(
        "extender: http://preempts claims to preempt pod (UID: u3) on node: a, but the pod is not found on that node"
    )
    reduced, _ = hold(preempt([PREEMPTS], b"{}", CANDIDATES), {"http://preempts": said(x=["u3"])})
    assert reduced.failure == error("extender http://preempts: node 'x' is none of the candidates")
    reduced, _ = hold(preempt([PREEMPTS], b"{}", CANDIDATES), {"http://preempts": said(a=[])})
    assert reduced.failure == error('expected at least one victim pod on node "a"')
