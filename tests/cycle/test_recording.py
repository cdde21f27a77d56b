"""What the cycle tells recorders: nothing unless one asks, and no longer than it asked for."""

from shared.messages.recording import CommitAnswered, DeciderShown, PodsShown, RecordDecisions, RoundDecided
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline

LEASE = 5.0


def a_pipeline() -> Pipeline:
    run = Pipeline(binds=False)
    run.add_nodes([node("a").capacity(cpu=8, memory="8Gi").build()])
    run.settle()
    return run


def decide(run: Pipeline, name: str) -> list[type]:
    """The types of the messages about it."""
    run.recorded.clear()
    run.submit([pod(name).request(cpu="1").build()])
    run.settle()
    return [type(each) for each in run.recorded]


def ask(run: Pipeline, recording: str) -> list[type]:
    run.recorded.clear()
    run._to_cycle(RecordDecisions(recording, LEASE))
    run.settle()
    return [type(each) for each in run.recorded]


def test_decisions_are_told_as_long_as_a_recorder_asks() -> None:
    run = a_pipeline()
    assert decide(run, "before") == []
    assert ask(run, "r") == [DeciderShown]
    assert decide(run, "p") == [PodsShown, RoundDecided, CommitAnswered]
    run.now += LEASE - 1
    assert ask(run, "r") == [], "it goes on"
    run.now += LEASE - 1
    assert decide(run, "q") == [PodsShown, RoundDecided, CommitAnswered]
    run.now += LEASE
    assert decide(run, "after") == []
    assert ask(run, "r") == [DeciderShown], "what was told meanwhile is unknown to it"


def test_another_recorder_is_told_how_it_is_decided_too() -> None:
    run = a_pipeline()
    ask(run, "r")
    assert ask(run, "other") == [DeciderShown]


def test_messages_are_numbered() -> None:
    run = a_pipeline()
    run._to_cycle(RecordDecisions("r", LEASE))
    run.submit([pod("p").request(cpu="1").build()])
    run.settle()
    assert [each.number for each in run.recorded] == [1, 2, 3, 4]
