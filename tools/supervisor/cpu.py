"""The CPU time of processes by name, over all their restarts."""

import psutil


class CpuAccounts:
    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._running: dict[str, tuple[psutil.Process, float]] = {}

    def opened(self, name: str, pid: int) -> None:
        """A process of this name runs now; what an earlier one has used stays in the account."""
        self.closed(name)
        self._ended.setdefault(name, 0.0)
        try:
            self._running[name] = (psutil.Process(pid), 0.0)
        except psutil.Error:
            return  # ended already

    def closed(self, name: str) -> None:
        """The process has ended; the last that was seen of it counts."""
        if name in self._running:
            self._ended[name] += self._running.pop(name)[1]

    def seconds(self) -> dict[str, float]:
        """User and system time up to now, in the order in which the names came first."""
        for name, (process, last) in self._running.items():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._running[name] = (process, max(last, times.user + times.system))
        return {name: ended + self._running_seconds(name) for name, ended in self._ended.items()}

    def _running_seconds(self, name: str) -> float:
        return self._running[name][1] if name in self._running else 0.0
