"""Requests and answers byte by byte: extenders are other people's programs."""

import msgspec
import pytest

from shared.extenders import wire
from shared.extenders.wire import BadAnswer, ExtenderVictim, FilterAnswer, MetaVictims, Victims

POD = b'{"metadata":{"name":"p"}}'
NODE = b'{"metadata":{"name":"a"}}'
TWO = {"a": Victims((ExtenderVictim("u1", POD), ExtenderVictim("u2", POD)), 1), 'quo"ted': Victims(())}


def plain(raw: bytes) -> object:
    return msgspec.json.decode(raw)


def test_an_extender_that_knows_the_nodes_gets_names() -> None:
    assert plain(wire.node_request(POD, ["a", "b"])) == {
        "Pod": {"metadata": {"name": "p"}},
        "Nodes": None,
        "NodeNames": ["a", "b"],
    }


def test_any_other_gets_nodes() -> None:
    assert plain(wire.whole_node_request(POD, [NODE, NODE])) == {
        "Pod": {"metadata": {"name": "p"}},
        "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "a"}}] * 2},
        "NodeNames": None,
    }
    assert plain(wire.whole_node_request(POD, [])) == {
        "Pod": {"metadata": {"name": "p"}},
        "Nodes": {"metadata": {}, "items": []},
        "NodeNames": None,
    }


def test_a_binding_names_pod_and_node() -> None:
    assert plain(wire.bind_request("ns", "p", "u", "a")) == {
        "PodName": "p",
        "PodNamespace": "ns",
        "PodUID": "u",
        "Node": "a",
    }


def test_victims_are_told_by_uid_or_whole() -> None:
    by_uid = plain(wire.preempt_request(POD, TWO, by_uid=True))
    assert by_uid == {
        "Pod": {"metadata": {"name": "p"}},
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {
            "a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1},
            'quo"ted': {"Pods": [], "NumPDBViolations": 0},
        },
    }
    whole = plain(wire.preempt_request(POD, TWO, by_uid=False))
    assert isinstance(whole, dict)
    assert whole["NodeNameToMetaVictims"] is None
    assert whole["NodeNameToVictims"]["a"] == {"Pods": [{"metadata": {"name": "p"}}] * 2, "NumPDBViolations": 1}


@pytest.mark.parametrize("lower", [False, True], ids=["as kube-scheduler writes", "in lower case"])
def test_the_case_of_fields_does_not_matter(lower: bool) -> None:
    def written(text: str) -> bytes:
        return (text.lower() if lower else text).encode()

    filtered = written(
        '{"NodeNames":["a"],"FailedNodes":{"b":"full"},"FailedAndUnresolvableNodes":{"c":"no"},"Error":"bad"}'
    )
    assert wire.filter_answer(filtered, by_name=True) == FilterAnswer(["a"], {"b": "full"}, {"c": "no"}, "bad")
    assert wire.scores(written('[{"Host":"a","Score":7},{"Host":"b","Score":0}]')) == {"a": 7, "b": 0}
    assert wire.bind_error(written('{"Error":"bad"}')) == "bad"
    victims = written('{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u1"}],"NumPDBViolations":2}}}')
    assert wire.preempt_answer(victims) == {"a": MetaVictims(["u1"], 2)}


def test_null_is_as_good_as_nothing() -> None:
    assert wire.filter_answer(b"null", by_name=True) == FilterAnswer(None, {}, {}, "")
    nulls = b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"Error":null,"More":1}'
    assert wire.filter_answer(nulls, by_name=True) == FilterAnswer(None, {}, {}, "")
    assert wire.filter_answer(b'{"Nodes":{"items":null}}', by_name=False).passed == []
    assert wire.scores(b"null") == {}
    assert wire.bind_error(b"{}") == ""
    assert wire.preempt_answer(b'{"NodeNameToMetaVictims":{"a":null}}') == {"a": MetaVictims([], 0)}


def test_who_was_sent_nodes_answers_with_nodes() -> None:
    both = b'{"NodeNames":["x"],"Nodes":{"items":[{"metadata":{"name":"a"},"spec":{}}]}}'
    assert wire.filter_answer(both, by_name=False).passed == ["a"]
    assert wire.filter_answer(both, by_name=True).passed == ["x"]
    assert wire.filter_answer(b'{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}', by_name=True).passed == ["a"]
    assert wire.filter_answer(b'{"NodeNames":["x"]}', by_name=False).passed is None


def test_a_host_that_is_named_twice_is_worth_both() -> None:
    assert wire.scores(b'[{"Host":"a","Score":7},{"Host":"a","Score":-2}]') == {"a": 5}


@pytest.mark.parametrize(
    "raw",
    [b"", b"no JSON", b"[]", b'{"NodeNames":"a"}', b'{"FailedNodes":[]}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "text", "list", "names", "failed", "bytes", "deep"],
)
def test_what_is_no_answer_to_a_filter_is_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswer):
        wire.filter_answer(raw, by_name=True)


@pytest.mark.parametrize("raw", [b"{}", b'[{"Host":"a","Score":1.5}]', b'[{"Host":1,"Score":1}]', b'[["a",1]]'])
def test_what_are_no_priorities_is_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswer):
        wire.scores(raw)


@pytest.mark.parametrize("victims", [b"[]", b'{"a":{"Pods":{}}}', b'{"a":{"Pods":[{"UID":1}]}}', b'{"a":{"Pods":[1]}}'])
def test_what_are_no_victims_is_refused(victims: bytes) -> None:
    with pytest.raises(BadAnswer):
        wire.preempt_answer(b'{"NodeNameToMetaVictims":%b}' % victims)
