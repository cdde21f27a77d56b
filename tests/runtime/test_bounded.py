"""BoundedDict: the entry that was set longest ago is evicted."""

from shared.bounded import BoundedDict


def test_one_entry_too_many_evicts_the_first() -> None:
    bounded = BoundedDict[str, int](2)
    bounded["a"], bounded["b"], bounded["c"] = 1, 2, 3
    assert list(bounded.items()) == [("b", 2), ("c", 3)]


def test_setting_an_entry_again_makes_it_the_last() -> None:
    bounded = BoundedDict[str, int](2)
    bounded["a"], bounded["b"], bounded["a"], bounded["c"] = 1, 2, 3, 4
    assert list(bounded.items()) == [("a", 3), ("c", 4)]


def test_setdefault_evicts_too_and_keeps_the_place_of_what_is_there() -> None:
    bounded = BoundedDict[str, int](2)
    assert [bounded.setdefault(key, 1) for key in "abac"] == [1, 1, 1, 1]
    assert list(bounded) == ["b", "c"]


def test_a_missing_entry_is_made_once() -> None:
    bounded, made = BoundedDict[str, int](2), list[str]()

    def make(key: str) -> int:
        made.append(key)
        return len(made)

    found = [bounded.obtain(key, lambda key=key: make(key)) for key in "abacb"]  # type: ignore[misc]
    assert (found, made) == ([1, 2, 1, 3, 2], ["a", "b", "c"])
    assert list(bounded) == ["b", "c"]
