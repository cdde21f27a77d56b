"""python -m services.snapshot: the snapshot, with settings from the environment and from flags."""

import sys

from services.snapshot.service import main
from shared.config.sources import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("snapshot", settings_of_process("snapshot"), main))
