"""python -m services.binder: the binder, with settings from the environment and from flags."""

import sys

from services.binder.service import main
from shared.config.commandline import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("binder", settings_of_process("binder"), main))
