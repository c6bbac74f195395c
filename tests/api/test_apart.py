"""Work in a copy of a process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import pytest

from api.planning.apart import Apart, EndedError

HANGS = 60


def _kept(answers: Connection) -> None:
    """What is changed in the copy stays as it is here; errors come back; a copy that is killed is told."""
    apart, numbers = Apart(), [1]

    def use_up() -> int:
        numbers.append(2)
        return sum(numbers)

    answers.send([apart.run(use_up), apart.run(use_up), numbers])
    with pytest.raises(ZeroDivisionError):
        apart.run(lambda: 1 // 0)
    with pytest.raises(EndedError):
        apart.run(lambda: os.kill(os.getpid(), signal.SIGKILL))
    answers.send("done")


def _asleep(answers: Connection) -> None:
    def tell_and_sleep() -> None:
        answers.send(os.getpid())
        time.sleep(HANGS)

    Apart().run(tell_and_sleep)


def test_what_is_kept_stays_as_it_is_and_what_goes_wrong_is_raised():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_kept, args=(theirs,))
    process.start()
    try:
        assert ours.poll(HANGS)
        assert ours.recv() == [3, 3, [1]]
        assert ours.poll(HANGS)
        assert ours.recv() == "done"
    finally:
        process.kill()
        process.join()


def test_a_copy_ends_with_the_process_that_made_it():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_asleep, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(HANGS)
    ours.recv()
    process.kill()
    process.join()
    assert ours.poll(HANGS / 2)  # the copy had the last other end
    with pytest.raises(EOFError):
        ours.recv()
