"""Passing on the output of processes."""

import asyncio
import io
import json
import re

import pytest

from tools.supervisor.relay import MAX_LINE_BYTES, LineCutter, Relay, message_in


def test_lines_for_people_begin_with_the_process_name() -> None:
    output = io.StringIO()
    relay = Relay(output, as_json=False, width=10)
    relay.pass_on("worker-0", "hello")
    relay.tell("ready")
    theirs, ours = output.getvalue().splitlines()
    assert theirs == "worker-0   | hello"
    assert re.fullmatch(r"flotilla   \| \d\d:\d\d:\d\d\.\d{3} INFO    ready", ours)
    assert relay.lines == ["worker-0   | hello", "flotilla   | ready"]


def test_a_terminal_has_a_status_line_below_all_others() -> None:
    output = io.StringIO()
    relay = Relay(output, as_json=False, live=True)
    relay.status("3 pending")
    relay.pass_on("cycle", "hello")
    relay.status("")
    clear = "\r\x1b[K"
    assert output.getvalue() == f"{clear}3 pending{clear}cycle    | hello\n3 pending{clear}"
    for other in (Relay(output := io.StringIO(), as_json=True, live=True), Relay(output, as_json=False)):
        other.status("3 pending")
        assert output.getvalue() == ""


def test_levels_are_coloured_on_demand() -> None:
    line = "11:01:08.346 WARNING queue: a WARNING of mine"
    for colour, shown in ((True, line.replace("WARNING", "\x1b[33mWARNING\x1b[0m", 1)), (False, line)):
        output = io.StringIO()
        Relay(output, as_json=False, colour=colour).pass_on("queue", line)
        assert output.getvalue() == f"queue    | {shown}\n"


def test_what_several_processes_report_is_printed_once_and_kept_of_all() -> None:
    output = io.StringIO()
    relay = Relay(output, as_json=False)
    for name in ("queue", "cycle"):
        relay.pass_on(name, f"11:01:08.346 WARNING {name}: NATS at h:1 is lost: Connection refused; trying again")
    assert len(output.getvalue().splitlines()) == 1
    assert len(relay.lines) == 2
    output = io.StringIO()
    relay = Relay(output, as_json=True)
    for name in ("queue", "cycle"):
        relay.pass_on(name, '{"level": "warning", "message": "NATS at h:1 is lost"}')
    assert len(output.getvalue().splitlines()) == 2  # machines get all


def test_json_lines_are_passed_on_unchanged() -> None:
    output = io.StringIO()
    Relay(output, as_json=True).pass_on("worker-0", '{"message":  "hello"}')
    assert output.getvalue() == '{"message":  "hello"}\n'


def test_other_lines_become_json() -> None:
    output = io.StringIO()
    Relay(output, as_json=True).pass_on("worker-0", 'Traceback: "x"')
    line = json.loads(output.getvalue())
    assert (line["service"], line["message"]) == ("worker-0", 'Traceback: "x"')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_a_closed_output_is_ignored() -> None:
    output = io.StringIO()
    relay = Relay(output, as_json=False)
    output.close()
    relay.pass_on("worker-0", "hello")
    assert relay.last_of("worker-0") == "hello"


def test_the_last_message_of_a_process() -> None:
    relay = Relay(io.StringIO(), as_json=True)
    relay.pass_on("cycle", '{"level": "error", "message": "no such plugin"}')
    assert relay.last_of("cycle") == "no such plugin"
    assert relay.last_of("queue") == ""


@pytest.mark.parametrize("line", ["plain", "{broken", '{"no": "text"}', "[1]", ""])
def test_a_line_without_a_message_is_the_message(line: str) -> None:
    assert message_in(line) == line


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_lines_are_assembled_from_chunks(step: int) -> None:
    text = "één\ntwo\r\n\nthree\n".encode()
    cutter = LineCutter()
    lines = [line for begin in range(0, len(text), step) for line in cutter.feed(text[begin : begin + step])]
    assert lines == ["één", "two", "", "three"]


def test_a_line_that_is_too_long_is_cut() -> None:
    cutter = LineCutter()
    first = list(cutter.feed(b"x" * MAX_LINE_BYTES + b"yy"))
    rest = list(cutter.feed(b"yyy\nnext\n"))
    assert first == []
    assert rest == ["x" * MAX_LINE_BYTES + " ... (5 bytes more)", "next"]


@pytest.mark.asyncio
async def test_the_last_line_needs_no_newline() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(b"one\ntwo")
    stream.feed_eof()
    relay = Relay(io.StringIO(), as_json=False)
    await relay.follow("a", stream)
    assert relay.lines == ["a        | one", "a        | two"]


def levels(*lines: str) -> list[str]:
    output = io.StringIO()
    relay = Relay(output, as_json=True)
    for line in lines:
        relay.pass_on("queue", line)
    return [json.loads(line)["level"] for line in output.getvalue().splitlines()]


def test_the_reason_for_an_end_is_an_error() -> None:
    assert levels("flotilla queue: prefix 'a' is used", "listening") == ["error", "info"]


def test_lines_of_a_traceback_are_errors_up_to_the_exception() -> None:
    traceback = ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: no")
    assert levels("hello", *traceback, "hello") == ["info", *["error"] * 4, "info"]
    group = ("  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: one", "  +----- 1 -----")
    assert levels(*group) == ["error"] * 3


def test_our_own_lines_have_the_given_level() -> None:
    output = io.StringIO()
    relay = Relay(output, as_json=True)
    relay.tell("ready")
    relay.tell("queue was ended by SIGKILL", "warning")
    assert [json.loads(line)["level"] for line in output.getvalue().splitlines()] == ["info", "warning"]
