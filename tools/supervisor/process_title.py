"""Names a forked process in `ps` and `top`, where all forks of one process would look the same (Linux only).

Two facts of Linux suffice, so no package is needed: the command line that others see is the memory in which the process
got its arguments, and prctl sets the short name.
"""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_NAME = 15
LONGEST_NAME = 15
"""Characters of the short name."""
_STAT = Path("/proc/self/stat")
_ARG_START, _ARG_END = 48, 49
"""Fields of /proc/self/stat, counted from 1."""


def set_title(name: str) -> None:
    """`flotilla NAME`, and NAME as the short name.

    Cut to the length of the command line with which the process was started. Does nothing elsewhere than on Linux.
    """
    if sys.platform != "linux":
        return
    short = name.encode("ascii", "replace")
    text = b"flotilla " + short
    ctypes.CDLL(None).prctl(PR_SET_NAME, short[:LONGEST_NAME], 0, 0, 0)
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in parentheses, may contain anything.
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
        if 0 < start < end:
            ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)
