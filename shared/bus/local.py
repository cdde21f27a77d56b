"""Local delivery: messages between services of one process, without a socket.

A process has one connection to NATS, which sends nothing back to it (`no_echo`). So a handler gets what its own process
sends here, and what others send over NATS, each in the order in which it was sent; no message takes both ways, and none
overtakes another one of its sender when a leader or a connection changes.

    a local subscription is the only one that counts  -> it gets the message, NATS does not
    there are local subscriptions, and maybe others   -> they get it, and NATS too
    there is none                                     -> NATS gets it

Only one counts where a leader listens that no other process doubles (`LED` in rights.py), and in a group of
subscribers, of which any one will do. A leader subscribes when its term begins, and withdraws before it releases its
Lease; one that has lost it takes messages of its own process away from its successor until it has noticed.
"""

from collections.abc import Container
from enum import Enum, auto
from typing import Any, NamedTuple

from shared.bus.client import NatsClient
from shared.bus.requests import Requests
from shared.bus.subscription import Subscription


class Reach(Enum):
    """Who has got a message here."""

    NOBODY = auto()
    SOME = auto()
    """There may be others elsewhere."""
    ALL = auto()


class Listener(NamedTuple):
    """`alone`: no other subscriber needs what it gets."""

    subscription: Subscription[Any]
    alone: bool


class LocalDelivery:
    """Messages are the bytes that NATS would carry, and wait in the same queues, so they are checked, bounded and
    counted alike.
    """

    def __init__(self, client: NatsClient) -> None:
        self._client = client
        self._listeners: dict[str, list[Listener]] = {}
        self._inboxes: dict[str, Requests] = {}

    def add(self, subject: str, listener: Listener) -> None:
        """From now on it gets what this process sends to the subject."""
        self._listeners.setdefault(subject, []).append(listener)

    def remove(self, subject: str, listener: Listener) -> None:
        listeners = self._listeners.get(subject, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(subject, None)

    def withdraw(self, subscriptions: Container[Subscription[Any]]) -> None:
        """None of these is the only one that counts any more."""
        for subject, listeners in list(self._listeners.items()):
            for listener in [each for each in listeners if each.alone and each.subscription in subscriptions]:
                self.remove(subject, listener)

    def open_inbox(self, requests: Requests) -> None:
        self._inboxes[requests.inbox] = requests

    def close_inbox(self, requests: Requests) -> None:
        self._inboxes.pop(requests.inbox, None)

    def deliver(self, subject: str, headers: bytes, body: bytes, reply_to: str) -> Reach:
        listeners = self._listeners.get(subject)
        if listeners is None:
            return self._reply(subject, headers, body)
        message = self._client.message(subject, reply_to, headers, body)
        for listener in listeners:
            if listener.alone:
                listener.subscription.deliver(message)
                return Reach.ALL
        for listener in listeners:
            listener.subscription.deliver(message)
        return Reach.SOME

    def _reply(self, subject: str, headers: bytes, body: bytes) -> Reach:
        requests = self._inboxes.get(subject.rpartition(".")[0])
        if requests is None:
            return Reach.NOBODY
        requests.answer(self._client.message(subject, "", headers, body))
        return Reach.ALL
