"""Random histories: every pod is in one state, and none is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flotilla.events import Action, Resource
from services.queue.events import ListingComplete, PodUnreadable
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import ClusterEvent
from shared.messages.queue import Activate, Batch, Outcome, Outcomes, Take, Verdict
from shared.model.objects import Pod
from testing.builders import node, pod
from tests.queue.support import (
    NODE_ADDED,
    NODE_DELETED,
    NODE_LABELS,
    NODE_TAINTS,
    POD_ADDED,
    POD_DELETED,
    Queue,
    acknowledged,
    batch_in,
    names,
    uid,
)

NAMES = [f"p{i}" for i in range(6)]
EVENTS = [NODE_ADDED, NODE_DELETED, NODE_LABELS, NODE_TAINTS, POD_ADDED, POD_DELETED]
PLUGINS = ["NodeResourcesFit", "NodeAffinity", "Unknown"]
name_of = st.sampled_from(NAMES)
names_of = st.lists(name_of, max_size=4)


class Anything(RuleBasedStateMachine):
    """The watch is in order; cycle and snapshot send anything, lose messages and repeat themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.pending: dict[str, bool] = {}
        """Gated or not, by name."""
        self.told: dict[str, Pod] = {}
        self.versions = 0
        self.sent: list[Outcomes] = []
        self.batches: dict[tuple[int, int], Batch] = {}

    def teardown(self) -> None:
        """In a quiet cluster, every pending pod that is not gated is handed out again."""
        queue = self.queue
        queue.epoch += 1
        queue.takes = 0
        wanted = {name for name, gated in self.pending.items() if not gated}
        had: set[str] = set()
        for _ in range(12):
            had |= set(queue.take())
            queue.at(queue.now + 30.0)
            had |= set(names(queue.ask_again()))
        assert had >= wanted

    @rule(name=name_of, priority=st.integers(0, 2), gated=st.booleans(), node=st.sampled_from(["", "", "n", "m"]))
    def appear_or_change(self, name: str, priority: int, gated: bool, node: str) -> None:
        gated = gated and self.pending.get(name, True)  # gates are never added
        self.versions += 1
        told = pod(name).priority(priority).label(v=str(self.versions))
        told = told.nominated(node) if node else told
        self.told[name] = (told.gate("x") if gated else told).build()
        self.pending[name] = gated
        self.queue.add(self.told[name])

    @rule(name=name_of, bound=st.booleans())
    def leave(self, name: str, bound: bool) -> None:
        self.pending.pop(name, None)
        self.queue.bound(name) if bound else self.queue.gone(name)

    @rule(name=name_of)
    def become_unreadable(self, name: str) -> None:
        self.pending.pop(name, None)
        self.queue.tell(PodUnreadable(uid(name), "default", name, "default-scheduler", "wrong"))

    @rule(event=st.sampled_from(EVENTS), shown=st.booleans())
    def change(self, event: ClusterEvent, shown: bool) -> None:
        thing = node("n").build() if event.resource is Resource.NODE else pod("other").on("n").build()
        before = thing if event.action is not Action.ADD else None
        now = thing if event.action is not Action.DELETE else None
        self.queue.change(event, *((before, now) if shown else ()))

    @rule(told=names_of)
    def activate(self, told: list[str]) -> None:
        self.queue.tell(Activate([uid(name) for name in told]))

    @rule(name=name_of, number=st.integers(1, 9), failure=st.sampled_from(["", "refused"]))
    def have_preempted(self, name: str, number: int, failure: str) -> None:
        self.queue.evicted(name, number, failure)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 2.5, 10.0, 61.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.queue.at(self.queue.now + seconds)

    @rule(back=st.floats(0.0, 5.0))
    def set_the_clock_back(self, back: float) -> None:
        self.queue.now -= back

    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        self.remember(self.queue.ask(most))

    @rule(back=st.integers(0, 3), epochs=st.integers(0, 1))
    def take_again_or_late(self, back: int, epochs: int) -> None:
        self.remember(batch_in(self.queue.tell(Take(self.queue.epoch - epochs, max(1, self.queue.takes - back), 2))))

    def remember(self, batch: Batch | None) -> None:
        """A Take that is repeated gets the same batch, until a cycle of another epoch is served."""
        if batch is not None:
            if any(epoch != batch.epoch for epoch, _ in self.batches):
                self.batches.clear()
            known = self.batches.setdefault((batch.epoch, batch.number), batch)
            assert known == batch

    @rule(
        told=names_of,
        verdict=st.sampled_from(list(Verdict)),
        plugins=st.sets(st.sampled_from(PLUGINS)),
        pending=st.sets(st.sampled_from(PLUGINS)),
        nominated=st.sampled_from([None, "", "n"]),
        preemption=st.sampled_from([0, 0, 1, 5]),
    )
    def report(
        self,
        told: list[str],
        verdict: Verdict,
        plugins: set[str],
        pending: set[str],
        nominated: str | None,
        preemption: int,
    ) -> None:
        queue = self.queue
        queue.reports += 1
        outcomes = [
            Outcome(
                uid(name),
                verdict,
                node="n",
                plugins=tuple(plugins),
                pending=tuple(pending),
                nominated=nominated,
                preemption=preemption,
            )
            for name in told
        ]
        message = Outcomes(queue.epoch, queue.reports, outcomes)
        self.sent.append(message)
        assert acknowledged(queue.tell(message))

    @rule()
    def report_again(self) -> None:
        if not self.sent:
            return
        message = self.sent[-1]
        before = self.queue.core.contents()
        effects = self.queue.tell(message)
        assert bool(acknowledged(effects)) == (message.epoch == self.queue.epoch)
        assert self.queue.core.contents() == before or batch_in(effects) is not None

    @rule(told=names_of, old=st.booleans(), plugin=st.sampled_from(["", "NodeResourcesFit"]))
    def forget(self, told: list[str], old: bool, plugin: str) -> None:
        self.queue.snapshot_epoch += 0 if old else 1
        self.queue.forget(*told, plugin=plugin)

    @rule()
    def start_again(self) -> None:
        """Restarts the queue with its retry records and a listing."""
        before = self.queue
        self.queue = Queue(records=before.stored)
        self.queue.stored |= before.stored
        self.queue.now, self.queue.epoch = before.now, before.epoch + 1
        self.sent.clear()
        self.batches.clear()
        self.queue.add(*(self.told[name] for name in self.pending))
        self.queue.tell(ListingComplete((1, 1)))

    @invariant()
    def only_what_there_is_is_remembered(self) -> None:
        assert set(self.queue.stored) <= {uid(name) for name in self.pending}

    @rule()
    def begin_a_new_cycle(self) -> None:
        self.queue.epoch += 1
        self.queue.takes = 0
        self.remember(self.queue.ask(1))

    @invariant()
    def every_pending_pod_is_somewhere_and_no_other_is(self) -> None:
        for name in NAMES:
            state = self.queue.state(name)
            assert (state is not None) == (name in self.pending), self.queue.history(name)
            if state is PodState.GATED:
                assert self.pending[name] or uid(name) in self.queue.core._queue.preemptions


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
