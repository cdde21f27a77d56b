"""python -m services.queue: the queue, with settings from the environment and from flags."""

import sys

from services.queue.service import main
from shared.config.sources import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("queue", settings_of_process("queue"), main))
