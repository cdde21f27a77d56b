"""What hosts a service: its process, its endpoints, its connection to the bus, and the shell around its core."""

from shared.runtime.context import Context, Health
from shared.runtime.corerunner import CoreRunner, every, sleep_until_tick
from shared.runtime.hosting import host, host_together

__all__ = ["Context", "CoreRunner", "Health", "every", "host", "host_together", "sleep_until_tick"]
