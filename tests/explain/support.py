"""Explanations from the cores in one process."""

from services.cycle import events as cycle
from shared.explain.advice import Advisor, Help, answered
from shared.messages.explaining import ExplainPod, PodExplained
from shared.model.objects import Pod, encode_msgpack
from testing.builders import PodBuilder
from testing.inprocess.pipeline import Pipeline
from tools.explain.client import of_findings
from tools.explain.explanation import Explanation


async def explained(pipeline: Pipeline, given: Pod | PodBuilder, nodes: tuple[str, ...] = ()) -> Explanation:
    """As the command explains a pod that is pending and does not wait for anything but nodes."""
    made = given.build() if isinstance(given, PodBuilder) else given

    async def ask(request: ExplainPod) -> PodExplained:
        return pipeline.explain_pod(request)

    answer = await ask(ExplainPod(made.namespace, made.name, made.uid, encode_msgpack(made), nodes))
    assert answer.findings is not None, answer.problem
    assert answer.findings.failure is None, answer.findings.failure
    found: list[Help] = []
    pairs: list[Help] = []
    if not answer.findings.feasible:
        found, pairs = await answered(Advisor(made, answer.findings).help(), ask)
    return of_findings(made, None, answer, answer.findings, answer.now, found, pairs, nodes)


def placed_on(pipeline: Pipeline, given: Pod | PodBuilder) -> str:
    """Where a pod goes; empty if nowhere."""
    made = given.build() if isinstance(given, PodBuilder) else given
    pipeline.submit([made])
    pipeline.settle()
    outcome = pipeline.outcomes[made.uid]
    return outcome.node if isinstance(outcome, cycle.Decided) else ""
