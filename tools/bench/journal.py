"""What the journal of decisions costs: python -m tools.bench.journal"""

import time
from collections.abc import Callable

from services.cycle.explanation.journal import Journal
from services.cycle.extenders import Extenders
from services.cycle.round.admission import Admission, PodInfo
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.views import view_of
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Ties
from shared.messages.rounds import ClassAnswer, Ladder
from shared.model.objects import DEFAULT_SCHEDULER
from testing.builders import node, pod
from testing.inprocess.batches import batch_of

PODS = 20_000
"""More than the journal keeps."""
WORKERS = 2
TIMES = 7
FRAMEWORKS = load_frameworks(None)


def main() -> None:
    infos, placement = list(_infos()), Placement("node-1", 500, 77)
    view = view_of(5000, 5000, _answers(136))

    def write() -> None:
        journal = Journal()
        for info in infos:
            journal.placed(info, placement, 3, view, 1.0)

    print(f"a record, per pod:                        {_best(write, PODS):6.1f} us")
    for rungs in (136, 1):
        answers = _answers(rungs)
        each = _best(lambda answers=answers: [view_of(5000, 5000, answers) for _ in range(1000)], 1000)  # type: ignore[misc]
        print(f"a view of {WORKERS} ladders of {rungs:3}, per class:       {each:6.1f} us")
    for nodes in (2500, 50_000):
        evaluator, pod_class, row = _evaluated(nodes)
        each = _best(lambda e=evaluator, c=pod_class, r=row: [e.runner_up(c, r) for _ in range(1000)], 1000)  # type: ignore[misc]
        print(f"the runner-up of {nodes:6,} nodes, per answer: {each:6.1f} us")


def _best(run: Callable[[], object], count: int) -> float:
    """Microseconds of CPU each, the least of several times."""
    least = float("inf")
    for _ in range(TIMES):
        began = time.process_time()
        run()
        least = min(least, time.process_time() - began)
    return least / count * 1e6


def _infos() -> list[PodInfo]:
    admission = Admission(FRAMEWORKS, Extenders())
    return [admission.admit(queued, 0.0)[0] for queued in batch_of([pod(f"p-{i}").build() for i in range(PODS)]).pods]


def _answers(rungs: int) -> list[ClassAnswer]:
    """As of that many workers; a lone pod's ladder has one rung, and comes with the runner-up."""
    return [
        ClassAnswer(
            "x",
            ladder=Ladder(
                nodes=[f"node-{worker}-{i}" for i in range(rungs)],
                scores=[500 - i for i in range(rungs)],
                ties=list(range(rungs)),
            ),
            runner_up=(f"next-{worker}", 499) if rungs == 1 else None,
        )
        for worker in range(WORKERS)
    ]


def _evaluated(nodes: int) -> tuple[ShardEvaluator, PodClass, int]:
    """A class, and its best row."""
    table = NodeTable()
    for i in range(nodes):
        table.upsert_node(node(f"node-{i}").capacity(cpu=4 + i % 7, memory="32Gi").build())
    evaluator = ShardEvaluator(table, FRAMEWORKS[DEFAULT_SCHEDULER], Ties())
    pod_class = evaluator.prepare("x", pod("p").request(cpu=1, memory="1Gi").build())
    evaluator.evaluate([Question(pod_class)])
    return evaluator, pod_class, int(evaluator.best(pod_class, 1)[0])


if __name__ == "__main__":
    main()
