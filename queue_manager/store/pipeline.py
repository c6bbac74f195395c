"""Statements that are sent together: none waits for the answer to the one before it.

A round trip costs both sides more than most statements do. SQLAlchemy waits for each answer, so these go to the driver
itself, in the transaction that SQLAlchemy has begun and will end. Their parameters are written as the driver has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

_DIALECT = make_url("postgresql+psycopg://").get_dialect()()

Send = Callable[[str, Mapping[str, Any]], "psycopg.Cursor[Any]"]
"""Sends a statement; its rows may be read when the `with` of the pipeline is over."""


@contextmanager
def pipeline(connection: Connection) -> Iterator[Send]:
    """Sends statements in order. When it is over all have been answered, or the first failure is raised, as
    SQLAlchemy's error for it; what came after that was not carried out, and the transaction can only be rolled back."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)

    try:
        with driver.pipeline():
            yield partial(send_to, driver)
    except psycopg.Error as error:
        lost = driver.closed
        if lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            None, None, error, psycopg.Error, connection_invalidated=lost, dialect=connection.dialect
        ) from error


def send_to(driver: psycopg.Connection[Any], statement: str, values: Mapping[str, Any]) -> psycopg.Cursor[Any]:
    """Sends one statement."""
    return driver.execute(statement.encode(), values)


def in_words_of_driver(statement: str) -> str:
    """The same statement with its parameters `:name` as the driver writes them."""
    return str(text(statement).compile(dialect=_DIALECT))


def first_of(answer: psycopg.Cursor[Any]) -> Any:
    """The first value of the first row, None where there is no row."""
    row = answer.fetchone()
    return row[0] if row is not None else None
