"""Answers any question about a live state: where pods go, how many fit, which nodes are needed."""

from collections.abc import Callable

from shared.errors import UserError
from tools.live_state import LiveState
from tools.whatif.answer import Answer, Question
from tools.whatif.capacity import capacity
from tools.whatif.engine import Engine, PodsOn
from tools.whatif.extending import Converse
from tools.whatif.groups import cheapest


def answer(
    live: LiveState,
    question: Question,
    pods_on: PodsOn,
    check: Callable[[], None] = lambda: None,
    converse: Converse | None = None,
) -> Answer:
    """Answers any question. `converse`: how extenders are asked, if they are."""
    if question.capacity and question.node_groups:
        raise UserError("capacity and node_groups are two questions: ask one at a time")
    engine = Engine(live, question, pods_on, check, converse)
    if question.capacity:
        return capacity(engine)
    if question.node_groups:
        return cheapest(engine)
    return engine.answer()
