"""Whatever happens in whatever order: nothing is in two places, and no pod is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.queue.events import PodUnreadable
from services.queue.places import Place
from services.queue.waking import ChangeKind
from shared.messages.queue import Batch, Outcome, Outcomes, Take, Verdict
from tests.builders import pod
from tests.queue.support import Queue, acknowledged, batch_in, names, uid

NAMES = [f"p{i}" for i in range(6)]
PLUGINS = ["NodeResourcesFit", "NodeAffinity", "Unknown"]
name_of = st.sampled_from(NAMES)
names_of = st.lists(name_of, max_size=4)


class Anything(RuleBasedStateMachine):
    """A watch that is in order; a cycle and a snapshot that say anything, lose anything and repeat themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.pending: dict[str, bool] = {}
        """Gated or not, by name."""
        self.versions = 0
        self.sent: list[Outcomes] = []
        self.batches: dict[tuple[int, int], Batch] = {}

    def teardown(self) -> None:
        """Every pod that is pending and not gated is handed out again, sooner or later, in a quiet cluster."""
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

    @rule(name=name_of, priority=st.integers(0, 2), gated=st.booleans())
    def appear_or_change(self, name: str, priority: int, gated: bool) -> None:
        gated = gated and self.pending.get(name, True)  # gates are never added
        self.versions += 1
        told = pod(name).priority(priority).label(v=str(self.versions))
        self.pending[name] = gated
        self.queue.add(told.gate("x") if gated else told)

    @rule(name=name_of, bound=st.booleans())
    def leave(self, name: str, bound: bool) -> None:
        self.pending.pop(name, None)
        self.queue.bound(name) if bound else self.queue.gone(name)

    @rule(name=name_of)
    def become_unreadable(self, name: str) -> None:
        self.pending.pop(name, None)
        self.queue.tell(PodUnreadable(uid(name), "default", name, "default-scheduler", "wrong"))

    @rule(kind=st.sampled_from(list(ChangeKind)))
    def change(self, kind: ChangeKind) -> None:
        self.queue.change(kind)

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
        if batch is not None:
            known = self.batches.setdefault((batch.epoch, batch.number), batch)
            assert known == batch

    @rule(told=names_of, verdict=st.sampled_from(list(Verdict)), plugins=st.sets(st.sampled_from(PLUGINS)))
    def report(self, told: list[str], verdict: Verdict, plugins: set[str]) -> None:
        queue = self.queue
        queue.reports += 1
        outcomes = [Outcome(uid(name), verdict, plugins=tuple(plugins)) for name in told]
        message = Outcomes(queue.epoch, queue.reports, outcomes)
        self.sent.append(message)
        assert acknowledged(queue.tell(message))

    @rule(data=st.data())
    def report_again(self, data: st.DataObject) -> None:
        if not self.sent:
            return
        message = data.draw(st.sampled_from(self.sent))
        before = self.queue.core.inspect()
        effects = self.queue.tell(message)
        assert bool(acknowledged(effects)) == (message.epoch == self.queue.epoch)
        assert self.queue.core.inspect() == before or batch_in(effects) is not None

    @rule(told=names_of, old=st.booleans())
    def forget(self, told: list[str], old: bool) -> None:
        self.queue.snapshot_epoch += 0 if old else 1
        self.queue.forget(*told)

    @rule()
    def begin_a_new_cycle(self) -> None:
        self.queue.epoch += 1
        self.queue.takes = 0
        self.remember(self.queue.ask(1))

    @invariant()
    def every_pending_pod_is_somewhere_and_no_other_is(self) -> None:
        for name in NAMES:
            place = self.queue.place(name)
            assert (place is not None) == (name in self.pending), self.queue.core.story(uid(name))
            if place is Place.GATED:
                assert self.pending[name]


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
