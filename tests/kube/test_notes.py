"""Names and lengths that an API server accepts."""

import uuid

from shared.kube.notes import MOST_NOTE_BYTES, cut_note, event_name


def test_an_event_is_named_after_its_pod_and_the_time() -> None:
    assert event_name("web-1", 1.0) == "web-1.3b9aca00"


def test_where_that_is_no_name_it_gets_a_random_one() -> None:
    assert uuid.UUID(event_name("a" * 250, 1.0))
    assert uuid.UUID(event_name("-", 1.0))


def test_a_note_is_cut_where_a_character_ends() -> None:
    assert cut_note("x" * MOST_NOTE_BYTES) == "x" * MOST_NOTE_BYTES
    cut = cut_note("ü" * MOST_NOTE_BYTES)
    assert cut.endswith("ü ...")
    assert MOST_NOTE_BYTES - 2 <= len(cut.encode()) <= MOST_NOTE_BYTES
