"""Cycle: answers from before the commit, rounds without workers, asks that no message can hold."""

import msgspec

from flotilla.results import error
from services.cycle.events import Ask, Failed, Workers
from services.cycle.extenders import Extenders
from services.cycle.membership import WORKER_PATIENCE, Membership
from services.cycle.preemption.search_queue import SearchQueue
from services.cycle.round.assign import Unfit
from shared.framework.loading import load_frameworks
from shared.messages.codec import encode
from shared.messages.evaluation import Summary
from shared.messages.limits import MAX_BODY
from shared.messages.preemption import Candidates, Preempt, ShardFindings
from shared.messages.queue import Batch, QueuedPod
from shared.messages.rounds import ClassAnswer, Ladder
from shared.messages.state import Committed
from shared.messages.workers import WorkerBeat
from shared.model.objects import Pod, encode_msgpack
from testing.builders import pod
from testing.inprocess.batches import pod_info
from tests.rounds.script import Script, asked, class_of, offer, written
from tests.rounds.support import BY_NAME, small_pod

P, Q = small_pod("p"), small_pod("q", cpu="2")


def test_an_answer_that_comes_after_the_commit_but_was_judged_before_it_is_asked_for_again() -> None:
    """In strict mode the second pod must be judged with the first one placed.

    Seen so far: 1. The second round asks for 2, which is a change of some node; the commit is number 3. The worker
    answers at 2, and its answer is overtaken by that of the snapshot.
    """
    script = Script("w0", round_size=1)
    first = script.submit(P, Q)
    effects = script.answer(first["w0"], "w0", offer(class_of(P), ("a", 5)), seq=1)
    commit, second = written(effects), asked(effects)["w0"]
    assert second.min_seq == 2
    script.handle(Committed(commit.epoch, commit.number, 3, []))
    effects = script.answer(second, "w0", offer(class_of(Q), ("b", 5)), seq=2)
    assert asked(effects), "decided on what was judged before the first pod had its place"


def test_pods_of_a_round_outlive_the_loss_of_all_workers_during_a_commit() -> None:
    """A class whose merged summary says nothing; all workers go while a commit is out; then the commit is answered."""
    script = Script("w0", "w1", round_size=1)
    bare = ClassAnswer(class_of(P), summary=Summary(nodes=1, feasible=1), ladder=Ladder(["a"], [5], [0]))
    none = ClassAnswer(class_of(P), summary=Summary(), ladder=Ladder())
    asks = script.submit(P, small_pod("p2"))
    effects = []
    for _ in range(3):  # until the guess is right
        for worker, propose in asks.items():
            effects = script.answer(propose, worker, bare if worker == "w0" else none)
        if any(type(effect).__name__ == "SendCommit" for effect in effects):
            break
        asks = asked(effects)
    commit = written(effects)
    script.handle(Workers({}, 2))
    script.handle(Committed(commit.epoch, commit.number, 9, []))  # IndexError, and the pod is held for ever
    assert asked(script.handle(Workers({"w0": frozenset({0}), "w1": frozenset({1})}, 2)))


def test_an_ask_fits_into_a_message_however_large_the_pods_are() -> None:
    """Annotations may be 256 KiB, the watcher lets through 512; such pods are asked about together."""
    script = Script("w0")
    large = [annotated(pod(f"p{n}").request(cpu=f"{100 + n}m").build(), "x" * 250_000) for n in range(40)]
    first = script.submit(small_pod("small"))
    script.submit(*large)
    effects = script.answer(first["w0"], "w0", offer(class_of(small_pod("small")), ("a", 5)))
    effects = script.committed(written(effects))
    assert all(len(encode(ask)) <= MAX_BODY for ask in asked(effects).values())


def annotated(of: Pod, text: str) -> Pod:
    return msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, annotations={"a": text}))


def test_a_worker_that_lives_and_never_loads_does_not_keep_its_shards() -> None:
    """It cannot reach Redis, say. While it holds a shard no pod is decided anywhere."""
    membership = Membership(1, 2)
    now = 0.0
    shards: dict[str, tuple[int, list[int]]] = {"good": (0, []), "bad": (0, [])}
    while now < 12 * WORKER_PATIENCE:
        for name, (number, held) in list(shards.items()):
            seq = 5 if name == "good" else 0
            beat = WorkerBeat(name, "i", 1 if number else 0, number, held, 2 if held else 0, seq)
            for worker, assign in membership.beat(beat, now):
                shards[worker] = (assign.number, assign.shards)
        for worker, assign in membership.tick(now):
            shards[worker] = (assign.number, assign.shards)
        now += 0.5
    assert membership.workers().shards == {"good": frozenset({0, 1})}


def test_a_class_without_a_summary_has_no_guess() -> None:
    """All workers go while a commit is out and the next round is asked about; then they are back.

    The empty guess makes every worker fail on the class, and a class that fails is not guessed about again: for ever.
    """
    script = Script("w0", "w1", round_size=1)
    asks = script.submit(P, small_pod("p2"))
    effects = script.settle(asks, until="SendCommit", w0=[("a", 5)], w1=[("b", 4)])
    commit = written(effects)
    script.handle(Workers({}, 2))
    script.handle(Committed(commit.epoch, commit.number, 9, []))
    again = asked(script.handle(Workers(script.shards, 2)))
    assert all(ask.guess is None or ask.guess.plugins for propose in again.values() for ask in propose.classes)


def test_a_guess_on_which_a_plugin_fails_is_dropped() -> None:
    """A label value is new, say, and the guess does not have it; a class that fails is not guessed about again."""
    script = Script("w0")
    effects = script.settle(script.submit(P), w0=[("a", 5)])
    script.committed(written(effects))
    asks = script.submit(small_pod("p2"))
    (ask,) = asks["w0"].classes
    assert ask.guess is not None
    effects = script.answer(asks["w0"], "w0", ClassAnswer(ask.class_id, failure=error("no such zone")))
    assert [type(effect).__name__ for effect in effects] == ["Failed"]
    (again,) = script.submit(small_pod("p2"))["w0"].classes
    assert again.guess is None or again.borrowed


def test_a_search_fits_into_a_message_however_much_extenders_have_said() -> None:
    """They have refused each of many nodes for each of many pods."""
    framework = load_frameworks(None)
    searching = SearchQueue(1, framework, BY_NAME, Extenders())
    refused = {f"node-{n}": error("not here, " + "x" * 100) for n in range(5_000)}
    waiting = [pod_info(each, f"class-{each.name}") for each in map(small_pod, "abcdefghijklmno")]
    searching.add([(queued, Unfit("no", (), 5_000, refused=refused)) for queued in waiting])
    sizes, told, now = [], 0, 0.0
    while asks := searching.begin({"w0": frozenset({0})}, 0, now):
        (effect,) = asks
        assert isinstance(effect, Ask)
        assert isinstance(effect.message, Preempt)
        sizes.append(len(encode(effect.message)))
        found = [ShardFindings(each.class_id, failure=error("none")) for each in effect.message.classes]
        answer = Candidates("w0", 1, effect.message.search, effect.message.ask, 1, [0], found)
        told += len(searching.on_candidates(answer, {"w0": frozenset({0})}, now).ended)
    assert told == len(waiting)
    assert len(sizes) > 1
    assert max(sizes) <= MAX_BODY


def test_a_pod_whose_body_cannot_be_decoded_fails_if_its_uid_can_be_read() -> None:
    """Without an outcome the queue hands it out again every 60 s, and its owner does not learn why it stays pending."""
    script = Script("w0")
    body = msgspec.msgpack.decode(encode_msgpack(P))
    body["metadata"]["annotations"] = 5
    queued = QueuedPod(msgspec.Raw(encode_msgpack(body)), 1, 0.0, 0.0)
    (failed,) = script.handle(Batch(1, 1, [queued]))
    assert isinstance(failed, Failed) and failed.uid == P.uid
    assert failed.status.message.startswith("the queue handed out a body that is no pod: Expected `object`, got `int`")
    assert len(script.core.refused) == 1
    assert script.core.pods_held == 0
