"""python -m services watcher queue snapshot cycle: several services in one process.

They know nothing of each other, as in processes of their own; messages between them only travel less far.
"""

import sys
from importlib import import_module

from shared.config.sources import settings_of_group
from shared.runtime import host_together

SERVICES = ("watcher", "queue", "snapshot", "cycle", "worker", "binder")

if __name__ == "__main__":
    settings, wanted = settings_of_group(SERVICES)
    sys.exit(host_together({name: import_module(f"services.{name}.__main__").main for name in wanted}, settings))
