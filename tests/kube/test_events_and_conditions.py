"""Names and lengths that an API server accepts."""

import uuid

import msgspec

from shared.kube.events_and_conditions import (
    MAX_NOTE_BYTES,
    PodEvent,
    PodRef,
    cut_note,
    event_body,
    event_name,
    series_body,
    series_path,
)


def test_an_event_is_named_after_its_pod_and_the_time() -> None:
    assert event_name("web-1", 1.0) == "web-1.3b9aca00"


def test_an_invalid_event_name_becomes_a_uuid() -> None:
    assert uuid.UUID(event_name("a" * 250, 1.0))
    assert uuid.UUID(event_name("-", 1.0))
    assert event_name("-", 1.0) == event_name("-", 1.0) != event_name("-", 2.0)


def test_a_series_has_a_count_of_two_or_more_and_the_last_time() -> None:
    once = PodEvent(PodRef("default", "web-1", "u"), "Warning", "r", "a", "n", "c", "i", 1.0)
    assert "series" not in msgspec.json.decode(event_body(once))
    event = msgspec.structs.replace(once, count=2, last=1.5)
    series = {"series": {"count": 2, "lastObservedTime": "1970-01-01T00:00:01.500000Z"}}
    assert msgspec.json.decode(event_body(event)).items() >= series.items()
    assert msgspec.json.decode(series_body(event)) == series
    assert series_path(event) == "/apis/events.k8s.io/v1/namespaces/default/events/web-1.3b9aca00"


def test_a_long_note_is_cut_between_characters() -> None:
    assert cut_note("x" * MAX_NOTE_BYTES) == "x" * MAX_NOTE_BYTES
    cut = cut_note("ü" * MAX_NOTE_BYTES)
    assert cut.endswith("ü ...")
    assert MAX_NOTE_BYTES - 2 <= len(cut.encode()) <= MAX_NOTE_BYTES
