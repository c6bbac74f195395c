"""What processes of one server share: they count as one, wait for each other, and a dead one holds nobody up."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from random import Random

import pytest

from api.buckets import Buckets
from api.seats import Seats
from api.shared import SETS, WAYS, Shared

SPAWN = multiprocessing.get_context("spawn")


@pytest.mark.parametrize("seed", range(5))
def test_shared_buckets_count_as_own_ones(seed: int):
    random, shared, own, now = Random(seed), Shared(), Buckets(), 1000.0
    for _ in range(3000):
        now += random.choice((0, 0.01, 0.2, 3))
        who = str(random.randrange(20)).encode()
        if random.random() < 0.1:
            shared.give_back(who, 8)
            own.give_back(who, 8)
        assert shared.take(who, 5, 8, now) == own.take(who, 5, 8, now)


def test_of_too_many_callers_the_one_that_was_quiet_longest_begins_anew():
    shared = Shared()
    assert shared.take(b"first", 1, 1, 1.0) == 0
    assert shared.take(b"first", 1, 1, 1.0) > 0
    for number in range(SETS * WAYS * 3):
        shared.take(str(number).encode(), 1, 1, 1.5)
    assert shared.take(b"first", 1, 1, 1.5) == 0


def _take(shared: Shared, answers: Connection) -> None:
    answers.send([shared.take(b"who", 1, 100, 5.0) for _ in range(200)].count(0))


def test_processes_take_from_one_bucket():
    shared = Shared()
    ours, theirs = SPAWN.Pipe()
    processes = [SPAWN.Process(target=_take, args=(shared, theirs)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert ours.recv() + ours.recv() == 100
    assert shared.take(b"who", 1, 100, 5.0) > 0


def _hold(shared: Shared, answers: Connection) -> None:
    with shared.writing:
        answers.send("mine")
        signal.pause()


def test_whose_turn_it_is_ends_with_the_process():
    shared = Shared()
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_hold, args=(shared, theirs))
    process.start()
    assert ours.recv() == "mine"
    waiting = SPAWN.Process(target=_hold, args=(shared, theirs))
    waiting.start()
    assert not ours.poll(0.5)
    os.kill(process.pid or 0, signal.SIGKILL)
    assert ours.recv() == "mine"
    waiting.kill()
    process.join()
    waiting.join()
    with shared.writing:
        pass
    with shared.writing:
        pass


def _sit(shared: Shared, answers: Connection) -> None:
    seats = Seats(shared)
    answers.send([seats.take("ada", 3), seats.take("ada", 3), seats.take("grace", 3)])
    signal.pause()


def test_seats_are_those_of_all_processes_and_free_again_with_the_one_that_had_them():
    shared = Shared()
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_sit, args=(shared, theirs))
    process.start()
    assert ours.recv() == [0, 1, 0]
    seats = Seats(shared)
    assert [seats.take("ada", 3), seats.take("ada", 3)] == [2, None]
    assert [seats.take("grace", 3) for _ in range(3)] == [1, 2, None]
    seats.give_back("ada", 2)
    assert seats.take("ada", 3) == 2
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert [seats.take("ada", 3) for _ in range(3)] == [0, 1, None]
    seats.give_back("ada", 1)
    assert [seats.take("ada", 3), seats.take("ada", 3)] == [1, None]
