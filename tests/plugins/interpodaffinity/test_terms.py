"""The terms of placed pods: which there are, which may speak of a namespace, and what is new."""

from shared.cluster.pod_indexes import MAX_CHANGES, TermCounts, encode_terms
from shared.model.load import PodTerm, load_of
from shared.model.objects import LabelSelector
from testing.builders import node, pod, selector
from tests.plugins.cluster import table_of

WEB = selector(app="web")


def term(*namespaces: str, selecting: LabelSelector | None = None, key: str = "zone") -> PodTerm:
    return PodTerm("anti", key, WEB, namespaces, selecting)


def about(terms: TermCounts, namespace: str) -> list[PodTerm]:
    return [each for each, _ in terms.about(namespace)]


def test_terms_that_may_speak_of_a_namespace() -> None:
    terms = TermCounts()
    named, both, selected = term("a"), term("a", "b", selecting=LabelSelector()), term(selecting=LabelSelector())
    terms.add(encode_terms([named, both, selected]), 0)
    assert about(terms, "a") == [named, both, selected]
    assert about(terms, "b") == [both, selected]
    assert about(terms, "c") == [both, selected]
    terms.remove(encode_terms([both]), 0)
    assert about(terms, "a") == [named, selected]
    terms.remove(encode_terms([named, selected]), 0)
    assert about(terms, "a") == []


def test_what_appeared_and_went_since() -> None:
    terms = TermCounts()
    start = terms.generation
    terms.add(encode_terms([term("a")]), 0)
    terms.add(encode_terms([term("a")]), 1)
    assert terms.since(start) == [(term("a"), True)]
    between = terms.generation
    terms.remove(encode_terms([term("a")]), 0)
    assert terms.generation == between
    terms.remove(encode_terms([term("a")]), 1)
    assert terms.since(between) == [(term("a"), False)]
    assert terms.since(terms.generation) == []


def test_what_is_too_long_ago_is_forgotten() -> None:
    terms = TermCounts()
    for i in range(MAX_CHANGES + 1):
        terms.add(encode_terms([term("a", key=f"key-{i}")]), 0)
    assert terms.generation == MAX_CHANGES + 1
    assert terms.since(0) is None
    assert terms.since(MAX_CHANGES) == [(term("a", key=f"key-{MAX_CHANGES}"), True)]


def test_a_table_counts_them_by_row() -> None:
    loner = pod("loner").label(app="web").require_no_pods("zone", WEB)
    table = table_of(node("n1"), node("n2"), pods=[loner.on("n2")])
    assert [(each, dict(rows)) for each, rows in table.terms] == [(term("default"), {1: 1})]
    table.add_pod("more", "n2", load_of(loner.build()))
    assert [dict(rows) for _, rows in table.terms.about("default")] == [{1: 2}]
