"""Texts about a class name no pod's claims, and texts about a pod name its own."""

import pytest

from shared.devices.claim_texts import with_names, without_names


@pytest.mark.parametrize(
    ("text", "keys", "kept"),
    [
        ("claim a/c: no device", ["a/c"], "claim {claim 0}: no device"),
        ("claim a/c10, then a/c1.", ["a/c1", "a/c10"], "claim {claim 1}, then {claim 0}."),
        ("claim a/c and a/c-2 and a/c.d and b/a/c", ["a/c"], "claim {claim 0} and a/c-2 and a/c.d and b/a/c"),
        ("claim a/c is named twice", ["a/c", "a/c"], "claim {claim 0} is named twice"),
        ("request r: device class gpu does not exist", ["a/c"], "request r: device class gpu does not exist"),
        ("no claims", [], "no claims"),
    ],
)
def test_names_are_left_out_where_they_are_whole(text: str, keys: list[str], kept: str) -> None:
    assert without_names(text, keys) == kept
    assert with_names(kept, keys) == text


def test_another_pod_of_the_class_gets_its_own_names() -> None:
    assert with_names(without_names("claim a/c0, claim a/d0", ["a/c0", "a/d0"]), ["a/c1", "a/d1"]) == (
        "claim a/c1, claim a/d1"
    )
    assert with_names("claim {claim 3}", ["a/c"]) == "claim {claim 3}"
