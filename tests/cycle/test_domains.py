"""Which domains a gang may lie in, and in which order they are tried."""

import pytest

from services.cycle.round.domains import Level, Room, Values, domains, holding, why_none

BLOCK, RACK = Level("example.com/block"), Level("example.com/rack")
RACKS: dict[Values, Room] = {
    ("b1", "r1"): Room({"c": 8}, nodes=4),
    ("b1", "r2"): Room({"c": 4}, nodes=2),
    ("b2", "r3"): Room({"c": 5}, nodes=4),
    ("b2", None): Room({"c": 9}, nodes=4),
}


def preferred(level: Level) -> Level:
    return level._replace(required=False)


def listed(levels: list[Level], wanted: int, placed: list[Values] | None = None) -> list[tuple[str, int]]:
    found = domains(levels, _rooms(levels), {"c": wanted}, placed or [])
    return [(domain.name, domain.members) for domain in found]


def _rooms(levels: list[Level]) -> dict[Values, Room]:
    """By the values of these levels only."""
    at = [(BLOCK.key, RACK.key).index(level.key) for level in levels]
    rooms: dict[Values, Room] = {}
    for values, room in RACKS.items():
        shared = tuple(values[i] for i in at)
        there = rooms.get(shared, Room({"c": 0}))
        rooms[shared] = Room({"c": there.places["c"] + room.places["c"]}, there.nodes + room.nodes)
    return rooms


def test_the_smallest_domain_that_holds_the_gang_comes_first() -> None:
    assert listed([RACK], 4) == [("r2", 4), ("r3", 4), ("r1", 4)]
    assert listed([RACK], 5) == [("r3", 5), ("r1", 5), ("r2", 4)]
    assert listed([BLOCK], 9) == [("b1", 9), ("b2", 9)]


def test_of_racks_with_the_same_room_the_one_in_the_smaller_block_comes_first() -> None:
    rooms: dict[Values, Room] = {
        ("b1", "r1"): Room({"c": 4}),
        ("b1", "r2"): Room({"c": 8}),
        ("b2", "r3"): Room({"c": 4}),
        ("b2", "r4"): Room({"c": 4}),
    }
    found = domains([BLOCK, RACK], rooms, {"c": 4})
    assert [domain.name for domain in found][:3] == ["r3 in b2", "r4 in b2", "r1 in b1"]


def test_of_domains_with_the_same_room_the_one_with_better_nodes_comes_first() -> None:
    rooms: dict[Values, Room] = {("r1",): Room({"c": 4}, 2, 20), ("r2",): Room({"c": 4}, 2, 40)}
    assert [domain.name for domain in domains([RACK], rooms, {"c": 4})] == ["r2", "r1"]


def test_a_preferred_level_is_given_up_when_no_domain_of_it_holds_all() -> None:
    assert listed([BLOCK, preferred(RACK)], 8)[:3] == [("r1 in b1", 8), ("b1", 8), ("b2", 8)]
    assert listed([BLOCK, preferred(RACK)], 10)[:3] == [("b1", 10), ("b2", 10), ("r1 in b1", 8)]
    assert listed([preferred(BLOCK), preferred(RACK)], 20)[0] == ("the cluster", 20)


def test_nodes_without_a_label_are_in_no_domain_of_it() -> None:
    assert [name for name, _ in listed([BLOCK, RACK], 1)] == ["r2 in b1", "r3 in b2", "r1 in b1"]


def test_a_class_with_too_few_places_takes_a_domain_out() -> None:
    rooms: dict[Values, Room] = {("r1",): Room({"c": 8}), ("r2",): Room({"c": 8, "launcher": 1})}
    found = domains([RACK], rooms, {"c": 4, "launcher": 1})
    assert [domain.name for domain in holding(found, 5)] == ["r2"]
    assert [domain.name for domain in holding(found, 4)] == ["r2", "r1"]


def test_others_go_where_placed_members_are() -> None:
    assert listed([RACK], 2, [("r1",), ("r1",)]) == [("r1", 2)]
    assert listed([BLOCK, preferred(RACK)], 6, [("b1", "r2")]) == [("b1", 6), ("r2 in b1", 4)]
    assert listed([BLOCK, preferred(RACK)], 2, [("b1", "r2"), ("b1", "r1")]) == [("b1", 2)]
    assert listed([RACK], 2, [("r1",), ("r2",)]) == []


@pytest.mark.parametrize(
    ("levels", "least", "total", "placed", "why"),
    [
        ([RACK], 9, 9, [], "no rack has room for all 9 members: the best, r1, has room for 8"),
        ([RACK], 9, 12, [], "no rack has room for 9 of the 12 members, which are needed: the best, r1, has room for 8"),
        ([BLOCK, RACK], 9, 9, [], "no rack has room for all 9 members: the best, r1 in b1, has room for 8"),
        ([BLOCK, preferred(RACK)], 20, 20, [], "no block has room for all 20 members: the best, b2, has room for 14"),
        ([RACK], 5, 5, [("r2",)], "r2, where other members are, has room for 4 of the 5 that are left"),
        ([RACK], 2, 2, [("r1",), ("r2",)], "members are in r1 and r2 already, and all must be in one rack"),
        (
            [RACK],
            2,
            2,
            [("r9",)],
            "members are in r9 already, where no node has room for another one",
        ),
    ],
)
def test_the_reason_is_one_sentence(
    levels: list[Level], least: int, total: int, placed: list[Values], why: str
) -> None:
    found = domains(levels, _rooms(levels), {"c": total}, placed)
    assert why_none(levels, found, least, total, placed) == why


def test_without_nodes_that_have_the_label_there_is_no_domain() -> None:
    assert domains([RACK], {(None,): Room({"c": 3})}, {"c": 2}) == []
    assert why_none([RACK], [], 2, 2) == "no node has the label example.com/rack, by which members lie together"
    assert why_none([BLOCK, RACK], [], 2, 2) == (
        "no node has the labels example.com/block and example.com/rack, by which members lie together"
    )
