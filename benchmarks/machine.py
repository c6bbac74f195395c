"""This machine: a calibration loop to compare machines by, and what processes use, read from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import percentile

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def spin() -> float:
    """Milliseconds of a fixed loop in Python, the best of seven: the speed of one core as this product sees it."""
    best = float("inf")
    for _ in range(7):
        started = time.perf_counter()
        total = 0
        for number in range(500_000):
            total += number * number % 7
        best = min(best, time.perf_counter() - started)
    return 1000 * best


def sync_write(folder: Path) -> float:
    """Milliseconds of one write of 8 kB with fdatasync, the median of 50: what a commit at least costs."""
    samples = []
    path = folder / "calibration"
    with path.open("wb", buffering=0) as file:
        for _ in range(50):
            started = time.perf_counter()
            file.write(b"x" * 8192)
            os.fdatasync(file.fileno())
            samples.append(time.perf_counter() - started)
    path.unlink()
    return 1000 * percentile(samples, 50)


def busy_cores(seconds: float = 2.0) -> float:
    """How many cores are at work while we only look: what others run on this machine."""

    def worked() -> int:
        user, nice, system, _idle, _wait, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
        return user + nice + system + sum(rest[:3])

    before, started = worked(), time.perf_counter()
    time.sleep(seconds)
    return (worked() - before) / TICKS / (time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Use:
    """Processor seconds since the start of some processes, and their memory now."""

    seconds: float
    resident: int


def use_of(pids: Iterable[int]) -> Use:
    """What these processes use together; those that are gone count as nothing."""
    seconds, resident = 0.0, 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        seconds += (int(stat[11]) + int(stat[12])) / TICKS
        resident += pages * PAGE
    return Use(seconds, resident)


def highest_resident(pid: int) -> int:
    """The most memory the process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def with_children(pid: int) -> list[int]:
    """The process and its direct children, whichever of its threads has started them."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(int(child) for found in children for child in found.read_text().split())]


def spent_by(pid: int) -> float:
    """Processor seconds of a process and its children, with those of processes that these have waited for."""
    spent = 0
    for each in with_children(pid):
        stat = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        spent += sum(map(int, stat[11:15]))
    return spent / TICKS


class Meter:
    """Processor seconds that groups of processes spend between `start` and `read`."""

    def __init__(self, groups: Mapping[str, Iterable[int]]) -> None:
        self._groups = {name: list(pids) for name, pids in groups.items()}
        self.start()

    def start(self) -> None:
        """Begins anew."""
        self._began = time.perf_counter()
        self._before = {name: use_of(pids).seconds for name, pids in self._groups.items()}

    def read(self) -> tuple[float, Mapping[str, float]]:
        """(seconds since the start, processor seconds by group)."""
        spent = {name: use_of(pids).seconds - self._before[name] for name, pids in self._groups.items()}
        return time.perf_counter() - self._began, spent
