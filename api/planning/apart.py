"""Work in a copy of this process, which ends with it: what is kept here stays as it is, and what is used up is given
back."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")


class EndedError(Exception):
    """The copy was killed."""


class Apart:
    """Made once in a process that was started by `multiprocessing` and has no other threads."""

    def __init__(self) -> None:
        # Nobody writes here. Its end is the end of this process, which has the only end to write to.
        self._alive, self._here = os.pipe()

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises in the copy. Raises EndedError when it was killed; ends this process when the
        one that started it has ended."""
        ours, theirs = multiprocessing.Pipe(False)
        pid = os.fork()
        if not pid:
            try:
                os.close(self._here)
                threading.Thread(target=self._end_with_parent, daemon=True).start()
                _answer(theirs, work)
            finally:
                os._exit(0)
        theirs.close()
        try:
            answer: T = self._answer_of(ours)
            return answer
        finally:
            ours.close()
            os.waitpid(pid, 0)

    @staticmethod
    def _answer_of(ours: Connection) -> Any:
        parent = multiprocessing.parent_process()
        if parent is not None and ours not in wait([ours, parent.sentinel]):
            os._exit(0)
        try:
            result, error = ours.recv()
        except EOFError:
            raise EndedError from None
        if error is not None:
            raise error
        return result

    def _end_with_parent(self) -> None:
        os.read(self._alive, 1)
        os._exit(0)


def _answer(theirs: Connection, work: Callable[[], object]) -> None:
    try:
        answer: tuple[object, Exception | None] = (work(), None)
    except Exception as error:
        answer = (None, error)
    theirs.send(answer)
