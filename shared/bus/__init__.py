"""The bus: typed messages over NATS. What may be lost is lost here, counted and never waited for."""

from shared.bus.access import NatsAccess
from shared.bus.bus import Bus
from shared.bus.errors import NoAnswer, Silence
from shared.bus.subscription import Envelope, Subscription

__all__ = ["Bus", "Envelope", "NatsAccess", "NoAnswer", "Silence", "Subscription"]
