"""python -m services.watcher: the watcher, with settings from the environment and from flags."""

import sys

from services.watcher.service import main
from shared.config.sources import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("watcher", settings_of_process("watcher"), main))
