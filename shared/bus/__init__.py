"""The bus: typed messages over NATS. A message may be lost here; losses are counted, and nothing waits for them."""

from shared.bus.access import NatsAccess
from shared.bus.bus import Bus
from shared.bus.subscription import Envelope, Subscription
from shared.bus.wire import NoAnswer, Silence

__all__ = ["Bus", "Envelope", "NatsAccess", "NoAnswer", "Silence", "Subscription"]
