"""What is known of a class by its groups of nodes, and when it is not enough."""

from services.cycle.round.followed_classes import FollowedClass, FollowedShard
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, ScoreGroup
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import pod, selector
from tests.rounds.support import DEFAULT

SPREAD = PodTopologySpread.name
WEB = pod("web").label(app="web").spread_soft("rack", selector(app="web")).build()


def shard(*groups: ScoreGroup) -> FollowedShard:
    """One of nodes in rack r, which is the only one, so that only the other scores count."""
    nodes = sum(group.count for group in groups)
    part = {"domains": {"r": 0}, "private": 0, "low": [], "every": True}
    own = {SPREAD: {"fellows": None, "hard": [], "soft": [part]}}
    late = {SPREAD: {"nodes": 0, "domains": [["r"]], "reliable": []}}
    plugin = DEFAULT.summaries[SPREAD]
    assert isinstance(plugin, PodTopologySpread)
    follower = plugin.follower(WEB, own[SPREAD])
    assert follower is not None
    answer = ClassAnswer("web", summary=Summary(nodes, nodes, own, {}, late), followed=True, groups=list(groups))
    return FollowedShard(answer, 1, SPREAD, follower)


def listed(count: int, **scores: tuple[int, int]) -> ScoreGroup:
    """Of `count` nodes these, with their scores now and after a placement."""
    now, after = [score for score, _ in scores.values()], [score for _, score in scores.values()]
    ties = [0] * len(scores)
    return ScoreGroup(["r"], 0, count, list(scores), now, ties, after, ties)


def best(of: FollowedShard) -> str | None:
    answers = FollowedClass(DEFAULT, {"w": of}).answers(1, (), alone=True)
    return None if answers is None else answers["w"].ladder.nodes[0]


def test_a_node_that_falls_behind_the_last_one_listed_is_not_the_next_where_there_are_others() -> None:
    few, all_of_them = listed(3, a=(10, 4), b=(6, 3)), listed(2, a=(10, 4), b=(6, 3))
    for group, last in ((few, None), (all_of_them, "a")):
        told = shard(group)
        found = [best(told)]
        for node in ("a", "b"):
            told.take(node)
            found.append(best(told))
        assert found == ["a", "b", last], "a third node may have up to 6"


def test_a_node_that_another_class_took_may_be_the_next_if_it_scores_no_less() -> None:
    for score, found in ((5, "b"), (6, None)):
        told = shard(listed(2, a=(10, 4), b=(6, 3)))
        assert told.give_way("a", score, None)
        assert best(told) == found


def test_a_node_that_is_full_ends_what_is_known() -> None:
    told = shard(listed(2, a=(10, -1), b=(6, 3)))
    assert told.take("a") == 0
    assert not told.holds
    assert not shard(listed(1, a=(10, 4))).give_way("a", -1, None)
