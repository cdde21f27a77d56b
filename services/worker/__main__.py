"""python -m services.worker: the worker, with settings from the environment and from flags."""

import sys

from services.worker.service import main
from shared.config.sources import settings_of_process
from shared.runtime import host

if __name__ == "__main__":
    sys.exit(host("worker", settings_of_process("worker"), main))
