"""What the processes of one server have in common: how much each caller has asked for and has open, and whose turn it
is to change the configuration. It lies in memory that they share; its locks are the kernel's, so that they end with
their holder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.reduction import DupFd
from typing import Any

from .buckets import Bucket

SETS, WAYS = 2048, 8
"""Callers whose names fall into one set share its places; of more, who was quiet longest begins anew."""
_PLACE = struct.Struct("16sdd")
_SET = WAYS * _PLACE.size
_SIZE = SETS * _SET
_BUCKETS, _WRITING = 0, 1
_SEATS, _EACH, _CALLERS = 1 << 32, 1 << 8, 1 << 48
"""The bytes that are locked: two, and behind what the file holds one for each seat of a caller's."""


class Shared:
    """Given to a process when it is started (as an argument of `multiprocessing.Process`), it is the same there."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = _memory() if fd is None else fd
        self._map = mmap.mmap(self._fd, _SIZE)
        self.writing = _Turn(self._fd, _WRITING)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._fd),)

    def take(self, who: bytes, rate: float, burst: float, now: float) -> float:
        """As `Buckets.take`; `now` is a clock that all processes have, as `time.monotonic` is on Linux."""
        name, first = _set_of(who)
        with _locked(self._fd, _BUCKETS):
            place, oldest, bucket = first, float("inf"), Bucket(burst, now)
            for each in range(first, first + _SET, _PLACE.size):
                found, left, at = _PLACE.unpack_from(self._map, each)
                if found == name:
                    place, bucket = each, Bucket(left, at)
                    break
                if at < oldest:
                    place, oldest = each, at
            wait = bucket.take(rate, burst, now)
            _PLACE.pack_into(self._map, place, name, bucket.left, bucket.at)
        return wait

    def give_back(self, who: bytes, burst: float) -> None:
        """As `Buckets.give_back`."""
        name, first = _set_of(who)
        with _locked(self._fd, _BUCKETS):
            for each in range(first, first + _SET, _PLACE.size):
                found, left, at = _PLACE.unpack_from(self._map, each)
                if found == name:
                    bucket = Bucket(left, at)
                    bucket.give_back(burst)
                    _PLACE.pack_into(self._map, each, name, bucket.left, bucket.at)

    def lock(self, name: bytes, number: int) -> bool:
        """As `seats.Locks`; the numbers of a name are below 256."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _seat(name, number))
        except (BlockingIOError, PermissionError):  # which of them is the system's choice
            return False
        return True

    def unlock(self, name: bytes, number: int) -> None:
        """As `seats.Locks`."""
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _seat(name, number))


class _Turn:
    """A lock between all threads of all processes."""

    def __init__(self, fd: int, byte: int) -> None:
        self._fd, self._byte = fd, byte
        self._here = threading.Lock()  # the kernel's knows processes only
        self._held = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._here.acquire()
        try:
            self._held.enter_context(_locked(self._fd, self._byte))
        except BaseException:
            self._here.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._held.close()
        finally:
            self._here.release()


def _set_of(who: bytes) -> tuple[bytes, int]:
    name = hashlib.blake2b(who, digest_size=16).digest()
    return name, int.from_bytes(name[:4], "little") % SETS * _SET


def _seat(name: bytes, number: int) -> int:
    if not 0 <= number < _EACH:
        raise ValueError(number)
    caller = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") % _CALLERS
    return _SEATS + caller * _EACH + number


@contextlib.contextmanager
def _locked(fd: int, byte: int) -> Iterator[None]:
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, byte)
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)


def _memory() -> int:
    """A file that has no name; in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        fd: int = os.memfd_create("queue-manager")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    return fd


def _received(fd: Any) -> Shared:
    return Shared(fd.detach())
