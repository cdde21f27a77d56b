"""What goes into a round, and into a message about it."""

from collections import deque

from services.cycle.extending import is_judged, most_judged
from services.cycle.knowledge import Knowledge
from services.cycle.round import Round
from services.cycle.walk import QueuedPod
from shared.messages.rounds import ClassAsk
from shared.model.objects import Pod, encode_msgpack

MOST_ALIKE = 256
"""So many pods of one class in a row make a round, whatever its size is to be."""
MOST_POD_BYTES = 4 << 20
"""Of whole pods in one message, half of what a message may hold."""


def next_pods(waiting: deque[QueuedPod], round_size: int, knowledge: Knowledge, nodes: int) -> list[QueuedPod]:
    """The next in line: a round's worth, or as many as fit into a message where they go along to the binder.

    Pods of one class in a row are decided together as they would be one by one, so strict mode does so, too; unless
    one of them matters to the next by more than the place it takes.
    """
    pods = [waiting.popleft()]
    size, alike = pods[0].size, knowledge.stands_alone(pods[0].class_id)
    judged = int(is_judged(pods[0].class_id))
    while waiting and len(pods) < max(round_size, MOST_ALIKE):
        following = waiting[0]
        if following.gang is not None and pods[0].gang is None:
            break
        size += following.size
        alike = alike and following.class_id == pods[0].class_id
        judged += is_judged(following.class_id)
        if size > MOST_POD_BYTES or (len(pods) >= round_size and not alike):
            break
        if judged > most_judged(nodes):
            break
        pods.append(waiting.popleft())
    return pods


def classes_asked(round_: Round, worker: str, workers: int, knowledge: Knowledge) -> list[ClassAsk]:
    """The classes that are open, with the pods that stand for them where the worker does not know these."""
    room = MOST_POD_BYTES
    asks: list[ClassAsk] = []
    for class_id, sample in round_.classes.items():
        if class_id not in round_.open:
            continue
        pod: Pod | None = None
        if room > 0 and not knowledge.is_known(class_id, worker):  # left out, it is asked for
            pod = sample.pod
            room -= len(encode_msgpack(pod))
        count = _ladder_length(round_.counts[class_id], workers)
        guess, borrowed = round_.guesses[class_id], round_.borrowed[class_id]
        each, among = is_judged(class_id), round_.among.get(class_id)
        asks.append(ClassAsk(class_id, sample.profile, count, pod, guess, each, among, borrowed))
    return asks


def _ladder_length(pods: int, workers: int) -> int:
    """Enough rungs for all pods if the shards share them within a factor of two; else the rest waits a round."""
    return min(pods, 2 * -(-pods // workers) + 8)
