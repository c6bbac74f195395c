"""Statements that are sent together: what they answer, and what becomes of those after one that fails."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, OperationalError

from queue_manager.store.pipeline import first_of, in_words_of_driver, pipeline
from tests.store.builders import NOW

PUT = in_words_of_driver("INSERT INTO facts (name, at) VALUES (:name, :at)")
COUNT = in_words_of_driver("SELECT count(*) FROM facts WHERE name LIKE :like")


def test_statements_are_carried_out_in_order_within_the_transaction(engine: Engine) -> None:
    with engine.begin() as connection:
        with pipeline(connection) as send:
            before = send(COUNT, {"like": "%"})
            send(PUT, {"name": "one", "at": NOW})
            after = send(COUNT, {"like": "%"})
        assert (first_of(before), first_of(after)) == (0, 1)
        with engine.connect() as other:
            assert other.execute(text("SELECT count(*) FROM facts")).scalar() == 0
    with engine.connect() as other:
        assert other.execute(text("SELECT count(*) FROM facts")).scalar() == 1


def test_a_failure_is_raised_as_one_of_sqlalchemy_and_nothing_stays(engine: Engine) -> None:
    def put(*names: str) -> None:
        with engine.begin() as connection, pipeline(connection) as send:
            for name in names:
                send(PUT, {"name": name, "at": NOW})

    with pytest.raises(IntegrityError, match="facts_pkey"):
        put("one", "one", "two")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM facts")).scalar() == 0


def test_a_lost_connection_is_not_used_again(engine: Engine) -> None:
    with pytest.raises(OperationalError) as failure, engine.begin() as connection, pipeline(connection) as send:
        send("SELECT pg_terminate_backend(pg_backend_pid())", {})
    assert failure.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
