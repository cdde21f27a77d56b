"""Logs for machines and for people."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import UserError
from shared.telemetry import logs
from shared.telemetry.logs import MAX_KEYS, AtMostEvery, Repeated, logger, set_up


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_is_as_it_was_afterwards() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("flotilla")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


@pytest.fixture(autouse=True)
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "in_container", lambda: True)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_machine_gets_an_object_a_line() -> None:
    stream = io.StringIO()
    set_up("queue", "queue-1", stream=stream)
    log = logger("queue")
    log.info("pod %s waits", "default/p", extra={"trace_id": "0af7", "span_id": "b7ad", "pod": "default/p"})
    log.debug("not said")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("ä failure")
    logging.getLogger("other").warning("of a library")
    logging.getLogger("other").info("not said")
    first, second, third = lines(stream)
    assert first.pop("time").__class__ is str
    assert first == {
        "level": "info",
        "service": "queue",
        "name": "queue-1",
        "logger": "flotilla.queue",
        "message": "pod default/p waits",
        "trace_id": "0af7",
        "span_id": "b7ad",
        "pod": "default/p",
    }
    assert (second["level"], second["message"]) == ("error", "ä failure")
    assert "ValueError: two\nlines" in str(second["exception"])
    assert third["message"] == "of a library"


def test_extra_fields_cannot_overwrite_others() -> None:
    stream = io.StringIO()
    set_up("queue", "queue-1", stream=stream)
    logger("queue").info("x", extra={"service": "binder", "odd": {1, 2}})
    assert lines(stream)[0]["service"] == "queue"


def test_a_terminal_gets_text() -> None:
    stream = Terminal()
    set_up("queue", "queue-1", stream=stream)
    logger("queue").warning("pod %s waits", "p", extra={"attempt": 2})
    assert stream.getvalue().endswith(" WARNING queue: pod p waits attempt=2\n")
    set_up("queue", "queue-1", format="json", stream=stream)
    logger("queue").warning("now for machines")
    assert json.loads(stream.getvalue().splitlines()[-1])["message"] == "now for machines"


def test_outside_containers_a_file_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "in_container", lambda: False)
    stream = io.StringIO()
    set_up("queue", "queue-1", stream=stream)
    logger("queue").info("hello")
    assert stream.getvalue().endswith(" INFO    queue: hello\n")


def test_a_container_is_known_by_its_files_or_by_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(logs, "CONTAINER_FILES", (str(tmp_path / "none"),))
    assert not logs.in_container()
    monkeypatch.setattr(logs, "CONTAINER_FILES", (str(tmp_path / "none"), str(tmp_path)))
    assert logs.in_container()
    monkeypatch.setattr(logs, "CONTAINER_FILES", ())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert logs.in_container()


def test_a_file_gets_text_when_asked() -> None:
    stream = io.StringIO()
    set_up("queue", "queue-1", format="text", level="debug", stream=stream)
    logger("queue").debug("hello")
    assert stream.getvalue().endswith(" DEBUG   queue: hello\n")


@pytest.mark.parametrize(("format", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_format_or_level_is_a_user_error(format: str, level: str) -> None:
    with pytest.raises(UserError, match=r"^logs: the format is one of"):
        set_up("queue", "queue-1", format=format, level=level)


# What repeats


def test_repeated_messages_are_logged_rarely_with_their_count() -> None:
    stream, now = io.StringIO(), 0.0
    set_up("queue", "queue-1", stream=stream)
    repeated = Repeated(logger("queue"), every=10.0, clock=lambda: now)
    for second in range(25):
        now = float(second)
        repeated.warning("a", "bad message %d", second)
        if second == 5:
            repeated.error("b", "something else")
    assert [line["message"] for line in lines(stream)] == [
        "bad message 0",
        "something else",
        "bad message 10 (and 9 more like it)",
        "bad message 20 (and 9 more like it)",
    ]


def test_remembered_repeats_are_bounded() -> None:
    stream = io.StringIO()
    set_up("queue", "queue-1", stream=stream)
    repeated = Repeated(logger("queue"), every=10.0, clock=lambda: 0.0)
    for key in range(3 * MAX_KEYS):
        repeated.warning(str(key), "x")
        repeated.warning(str(key), "x")
    assert len(lines(stream)) == 3 * MAX_KEYS
    assert len(repeated._known) == MAX_KEYS


def test_loggers_of_libraries_are_rate_limited() -> None:
    stream, now = io.StringIO(), 0.0
    set_up("queue", "queue-1", stream=stream)
    other = logging.getLogger("other.exporter")
    quiet = AtMostEvery(10.0, clock=lambda: now)
    other.addFilter(quiet)
    for second in range(15):
        now = float(second)
        other.error("failed: %d", second)
    other.removeFilter(quiet)
    assert [line["message"] for line in lines(stream)] == ["failed: 0", "failed: 10"]
