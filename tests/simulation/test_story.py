"""A seed that fails is explained: who decided, called and answered what about the pods concerned, and when."""

import re
from concurrent.futures import ProcessPoolExecutor

import pytest

from testing.simulation.broken import broken_build
from testing.simulation.drawing import draw
from testing.simulation.running import Options, Result, play, play_with_story
from testing.simulation.story import FIRST_LINES, MAX_LINES, _shortened
from tests.simulation.test_broken import first_that_fails
from tools.cli.simulation import replay_commands

UID = re.compile(r"\((u[\d-]+)\)")


def story_of(broken: str, player: ProcessPoolExecutor) -> tuple[Result, str, list[str]]:
    """The result, the uid that it is about, and the lines of that pod, without their times."""
    result = player.submit(first_failure, broken).result()
    found = UID.search(result.wrong)
    assert found is not None, result.wrong
    label = re.compile(rf"(p{found[1][1:]}|\S+ \({found[1]}\))\s+")
    lines = [line.split(maxsplit=1)[1] for line in result.story if len(line.split()) > 1]
    return result, found[1], [label.sub("", line, count=1) for line in lines if label.match(line)]


def first_failure(broken: str) -> Result:
    schedule = first_that_fails(broken)
    assert schedule is not None
    with broken_build(broken):
        return play_with_story(schedule)


def test_a_binding_without_a_version_is_told_with_its_order_the_late_call_and_the_states_of_the_queue(
    player: ProcessPoolExecutor,
) -> None:
    result, _, lines = story_of("bindings-without-version", player)
    where = re.search(r"bind it to (\S+)$|to (\S+), where", result.wrong.splitlines()[0])
    assert where is not None, result.wrong
    node = where[1] or where[2]
    assert lines[0].startswith("API server") and "created" in lines[0]
    assert any(re.match(rf"cycle\S* +decides: {node} \(round \d+ of term \d+\)", line) for line in lines)
    assert any(re.match(rf"snapshot\S* +orders b\d to bind it to {node} \(attempt \d+ of term", line) for line in lines)
    call = rf"bind it to {node} \(at any version\)"
    assert any(re.match(rf"b\d +calls: {call}; arrives at [\d.]+", line) for line in lines)
    assert any(
        re.search(rf"on its way, sent at [\d.]+: {call}|call: {call}, sent [\d.]+ s ago", line) for line in lines
    )
    assert any(re.match(r"snapshot\S* +forgets it", line) for line in lines)
    assert any(re.match(r"queue\S* +state active: UnschedulablePodAdd", line) for line in lines)
    assert "UnschedulablePodAdd" not in result.wrong
    times = [float(line.split()[0]) for line in result.story]
    assert times == sorted(times) and len(times) <= MAX_LINES


def test_an_eviction_that_was_not_asked_for_is_told_with_its_order_and_the_preemptor(
    player: ProcessPoolExecutor,
) -> None:
    result, _, lines = story_of("evictions-unasked", player)
    ordered = [found for line in lines if (found := re.search(r"orders a binder to evict it for (\S+) on n\d", line))]
    assert ordered
    assert any(re.match(r"b\d +calls: delete it", line) for line in lines)
    assert any(f" {each[1]} " in line and "to evict" not in line for each in ordered for line in result.story)


def test_a_story_changes_nothing_of_the_course_and_there_is_none_where_all_holds() -> None:
    schedule = draw(5, scene="plain", seconds=5.0)
    told = play_with_story(schedule)
    assert told.log == play(schedule).log
    assert told.held and told.story == []


def test_a_long_story_keeps_how_it_began_and_how_it_ended() -> None:
    lines = [str(number) for number in range(200)]
    shown = _shortened(lines)
    assert len(shown) == MAX_LINES
    assert shown[:FIRST_LINES] == lines[:FIRST_LINES] and shown[-1] == "199"
    assert "left out" in shown[FIRST_LINES]
    assert _shortened(lines[:MAX_LINES]) == lines[:MAX_LINES]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (Options(), ""),
        (Options(scene="plain"), " --scene plain"),
        (Options(broken="fence-without-touch"), " --broken fence-without-touch"),
    ],
)
def test_the_commands_to_replay_are_whole(options: Options, arguments: str) -> None:
    of_schedule, of_seed = replay_commands(7, options)
    assert of_seed == f"flotilla simulation --first 7 --count 1{arguments}"
    broken = f" --broken {options.broken}" if options.broken else ""
    assert of_schedule == f"flotilla simulation --schedule FILE{broken}"
