import pytest

from shared.cluster.view import TableView
from shared.model.objects import ImageSource, Volume
from shared.plugins.imagelocality import ImageLocality, image_name, pod_images
from testing.builders import NodeBuilder, PodBuilder, class_state, node, pod
from tests.plugins.cluster import framework, judge, scores, table_of

MIB = 1024 * 1024


def uses(*images: str) -> PodBuilder:
    built = pod("p")
    for image in images:
        built = built.container(image=image)
    return built


def volume(image: str) -> Volume:
    return Volume(name="data", image=ImageSource(reference=image))


def holds(name: str, **images: int) -> NodeBuilder:
    """A node with images of these sizes in MiB."""
    built = node(name)
    for image, size in images.items():
        built = built.image(f"{image}:latest", size * MIB)
    return built


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1.27", "nginx:1.27"),
        ("registry/nginx", "registry/nginx:latest"),
        ("registry:5000/nginx", "registry:5000/nginx:latest"),
        ("registry:5000/nginx:1", "registry:5000/nginx:1"),
        ("nginx@sha256:abc", "nginx@sha256:abc"),
        ("", ":latest"),
    ],
)
def test_the_tag_that_is_meant(name: str, full: str) -> None:
    assert image_name(name) == full


def test_all_images_of_a_pod() -> None:
    built = uses("web", "db:2").init_container(image="setup").volume(volume("model")).volume(Volume(name="x")).build()
    assert sorted(pod_images(built)) == ["db:2", "model:latest", "setup:latest", "web:latest"]


@pytest.mark.parametrize(
    ("arriving", "size", "score"),
    [
        # One container: nothing up to 23 MiB, all from 1000 MiB.
        (uses("x"), 0, 0),
        (uses("x"), 23, 0),
        (uses("x"), 32, 0),
        (uses("x"), 33, 1),
        (uses("x"), 500, 48),
        (uses("x"), 999, 99),
        (uses("x"), 1000, 100),
        (uses("x"), 5000, 100),
        # Two containers: 2000 MiB are needed for all; an image that is used twice counts twice.
        (uses("x", "other"), 1000, 49),
        (uses("x", "other"), 2000, 100),
        (uses("x", "x"), 1000, 100),
        # Init containers count as containers, image volumes do not.
        (uses("x").init_container(image="other"), 1000, 49),
        (uses("other").init_container(image="x"), 1000, 49),
        (uses("other").volume(volume("x")), 1000, 100),
        (uses("x").volume(volume("x")), 500, 100),
        (uses("other"), 1000, 0),
    ],
)
def test_score_by_size(arriving: PodBuilder, size: int, score: int) -> None:
    table = table_of(holds("n", x=size))
    assert scores(ImageLocality(), arriving, table) == {"n": score}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([holds("a", x=800), holds("b")], [38, 0]),
        ([holds("a", x=800), holds("b", x=800)], [79, 79]),
        ([holds("a", x=800), holds("b"), holds("c"), holds("d")], [18, 0, 0, 0]),
        ([holds("a", x=800, y=400), holds("b", y=400)], [38, 0]),
    ],
)
def test_common_images_count_more(nodes: list[NodeBuilder], expected: list[int]) -> None:
    assert list(scores(ImageLocality(), uses("x"), table_of(*nodes)).values()) == expected


def test_several_images_add_up() -> None:
    table = table_of(holds("both", x=600, y=800), holds("one", y=800), holds("none"))
    # x is on one node of three, y on two: 200 + 533.3 MiB, and 533.3 MiB, of 23 to 2000.
    assert scores(ImageLocality(), uses("x", "y"), table) == {"both": 35, "one": 25, "none": 0}


def test_an_image_goes_by_all_its_names() -> None:
    table = table_of(node("n").image("repo/x@sha256:1", 1000 * MIB, "repo/x:1", "repo/x:latest"))
    for image in ("repo/x@sha256:1", "repo/x:1", "repo/x"):
        assert scores(ImageLocality(), uses(image), table) == {"n": 100}
    assert scores(ImageLocality(), uses("repo/x:2"), table) == {"n": 0}


def test_summaries_of_shards_add_up() -> None:
    state = class_state(uses("x", "y").build())
    plugin = ImageLocality()
    one = plugin.summarize(state, TableView(table_of(holds("a", x=800), holds("b", x=800, y=1))))
    other = plugin.summarize(class_state(state.pod), TableView(table_of(holds("c", x=800))))
    assert one == {"nodes": 2, "images": {"x:latest": 2, "y:latest": 1}}
    assert plugin.merge(one, other) == plugin.merge(other, one)
    assert plugin.merge(one, other) == {"nodes": 3, "images": {"x:latest": 3, "y:latest": 1}}


def test_a_summary_follows_the_nodes() -> None:
    plugin, table = ImageLocality(), table_of(holds("a", x=800))
    state = class_state(uses("x").build())
    assert plugin.summarize(state, TableView(table)) == {"nodes": 1, "images": {"x:latest": 1}}
    table.add_node(holds("b").build())
    assert plugin.summarize(state, TableView(table)) == {"nodes": 2, "images": {"x:latest": 1}}
    table.remove_node("a")
    assert plugin.summarize(state, TableView(table)) == {"nodes": 1, "images": {"x:latest": 0}}
    state.summaries[plugin.name] = plugin.summarize(state, TableView(table))
    assert plugin.score(state, TableView(table)).tolist() == [0, 0]


def test_every_node_counts_for_the_spread_and_not_only_feasible_ones() -> None:
    table = table_of(holds("a", x=800), holds("b").unschedulable())
    explained = judge(framework("NodeUnschedulable", "ImageLocality"), uses("x"), table)
    assert explained.scores == {"a": {"ImageLocality": 38}}
