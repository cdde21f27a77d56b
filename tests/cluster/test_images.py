from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.images import ImageSizes
from shared.model.objects import Node
from testing.builders import node


def sizes(of: Node) -> dict[str, int]:
    return {name: image.size_bytes for image in of.status.images for name in image.names}


def test_the_first_reported_size_counts() -> None:
    images = ImageSizes()
    assert sizes(images.settle(node("a").image("web:1", 10).build(), None)) == {"web:1": 10}
    assert sizes(images.settle(node("b").image("web:1", 12).image("db:1", 7).build(), None)) == {"web:1": 10, "db:1": 7}


def test_a_size_counts_until_no_node_has_the_image() -> None:
    images = ImageSizes()
    a = images.settle(node("a").image("web:1", 10).build(), None)
    b = images.settle(node("b").image("web:1", 12).build(), None)
    images.forget(a)
    c = images.settle(node("c").image("web:1", 13).build(), None)
    assert sizes(c) == {"web:1": 10}
    images.forget(b)
    images.forget(c)
    assert sizes(images.settle(node("d").image("web:1", 14).build(), None)) == {"web:1": 14}


def test_an_update_by_the_only_holder_takes_the_new_size() -> None:
    images = ImageSizes()
    before = images.settle(node("a").image("web:1", 10).build(), None)
    after = images.settle(node("a").image("web:1", 11).build(), before)
    assert sizes(after) == {"web:1": 11}


def test_an_update_by_one_of_several_holders_does_not() -> None:
    images = ImageSizes()
    a = images.settle(node("a").image("web:1", 10).build(), None)
    b = images.settle(node("b").image("web:1", 10).build(), None)
    assert sizes(images.settle(node("a").image("web:1", 11).build(), a)) == {"web:1": 10}
    assert sizes(images.settle(node("b").build(), b)) == {}
    images.forget(node("a").image("web:1", 10).build())
    assert sizes(images.settle(node("c").image("web:1", 12).build(), None)) == {"web:1": 12}


def test_names_of_one_image_may_settle_to_different_sizes() -> None:
    images = ImageSizes()
    images.settle(node("a").image("web:1", 10).build(), None)
    settled = images.settle(node("b").image("web:1", 12, "web@sha256:0").build(), None)
    assert sizes(settled) == {"web:1": 10, "web@sha256:0": 12}


def test_other_fields_of_the_node_are_unchanged() -> None:
    built = node("a").capacity(cpu="4").label(zone="x").taint("t").image("web:1", 10).build()
    assert ImageSizes().settle(built, None) == built
    assert ImageSizes().settle(node("b").build(), None) == node("b").build()


REPORTS = st.dictionaries(st.sampled_from(["web", "db", "job"]), st.integers(1, 5), max_size=3)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | REPORTS), max_size=30))
def test_all_holders_carry_one_size_that_one_of_them_reported(events: list[tuple[str, dict[str, int] | None]]) -> None:
    images = ImageSizes()
    held: dict[str, Node] = {}
    expected: dict[str, int] = {}
    for name, report in events:
        before = held.pop(name, None)
        for image in list(expected):
            if not any(image in sizes(other) for other in held.values()):
                del expected[image]
        if report is None:
            if before is not None:
                images.forget(before)
            continue
        built = node(name)
        for image, size in report.items():
            built = built.image(image, size)
            expected.setdefault(image, size)
        held[name] = images.settle(built.build(), before)
        assert sizes(held[name]) == {image: expected[image] for image in report}
