"""python -m services.cycle: the cycle, with settings from the environment and from flags."""

import sys

from services.cycle.service import main
from shared.config.sources import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("cycle", settings_of_process("cycle"), main))
