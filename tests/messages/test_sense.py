"""Messages that decode and cannot be true do not reach a core."""

import pytest

from shared.errors import ProtocolError
from shared.messages.evaluation import Ties
from shared.messages.preemption import GangAsk, Preempt
from shared.messages.rounds import Given, Propose
from shared.messages.sense import check_sense
from shared.messages.state import Assignment, Commit, Decision, Nominate
from shared.model.load import PodLoad

P = Assignment("default/p", "default", "p", "default-scheduler", "a")
LOAD = PodLoad("default")


@pytest.mark.parametrize(
    "message",
    [
        Commit(1, 1, [LOAD], [Decision(P, load=1, seen=1)]),
        Commit(1, 1, [LOAD], [], [Nominate(P, load=1, seen=1)]),
        Propose(1, 1, 1, 1, Ties(), [], given=[Given("default/q", "a", 1)], loads=[LOAD]),
        Preempt(1, 1, 1, 1, [], GangAsk(0, given=[Given("default/q", "a", 1)], loads=[LOAD])),
    ],
    ids=["decision", "nomination", "given pod", "member with room"],
)
def test_loads_that_a_message_does_not_have(message: Commit | Propose | Preempt) -> None:
    with pytest.raises(ProtocolError, match="not among the 1 of this message"):
        check_sense(message)
