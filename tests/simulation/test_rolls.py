"""Leaders that end in turn while pods come, as in an upgrade, keep no pod waiting."""

from concurrent.futures import ProcessPoolExecutor

from testing.simulation.drawing import LEADING, draw
from testing.simulation.running import Result, play


def test_pods_are_bound_at_once_whichever_leader_ends(player: ProcessPoolExecutor) -> None:
    schedule = draw(1, scene="plain-rolls", seconds=16.0)
    assert {entry.arguments["name"] for entry in schedule.entries if entry.what == "roll"} == set(LEADING)
    result: Result = player.submit(play, schedule).result()
    assert result.held, f"{result.wrong}\n" + "\n".join(result.log)
