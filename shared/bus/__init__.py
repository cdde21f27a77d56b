"""The bus: typed messages over NATS. What may be lost is lost here, counted and never waited for."""

from shared.bus.access import NatsAccess
from shared.bus.bus import Bus
from shared.bus.envelope import Envelope
from shared.bus.errors import NoAnswer, Silence
from shared.bus.subscription import Subscription

__all__ = ["Bus", "Envelope", "NatsAccess", "NoAnswer", "Silence", "Subscription"]
