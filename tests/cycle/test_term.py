"""How a cycle has the snapshot confirm its term."""

from services.cycle.commits import COMMIT_DEADLINE
from services.cycle.events import ConfirmTerm, SendCommit, TermConfirmed, Tick
from shared.messages.state import EPOCH_SHIFT, Commit, Heartbeat
from testing.builders import pod
from tests.rounds.script import Script, written

P = pod("p").request(cpu="1").build()
NEW_TERM = 7 << EPOCH_SHIFT


def confirming() -> tuple[Script, Commit]:
    script = Script("w0")
    commit = written(script.handle(ConfirmTerm()))
    assert (commit.decisions, commit.nominations, commit.denominated) == ([], [], [])
    return script, commit


def test_the_term_is_confirmed_by_the_answer_to_an_empty_commit() -> None:
    script, commit = confirming()
    assert script.committed(commit) == [TermConfirmed()]
    assert script.committed(commit) == []


def test_it_is_sent_again_until_it_is_answered() -> None:
    script, commit = confirming()
    assert script.handle(Tick()) == []
    script.now = COMMIT_DEADLINE
    assert script.handle(Tick()) == [SendCommit(commit)]
    assert script.committed(commit) == [TermConfirmed()]


def test_a_snapshot_that_begins_its_term_gets_it_at_once() -> None:
    script, commit = confirming()
    assert script.handle(Heartbeat(7, NEW_TERM)) == [SendCommit(commit)]
    assert script.handle(Heartbeat(7, NEW_TERM + 1)) == []


def test_a_commit_that_was_sent_before_the_question_does_not_answer_it() -> None:
    script = Script("w0")
    decided = written(script.settle(script.submit(P), w0=[("a", 4)]))
    assert script.handle(ConfirmTerm()) == []
    effects = script.committed(decided)
    assert TermConfirmed() not in effects
    assert TermConfirmed() in script.committed(written(effects), seq=10)
