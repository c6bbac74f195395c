"""Structured logs: one JSON object a line, or aligned text on a terminal."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

import structlog


def configure_logs(file: Path | None = None) -> None:
    """Logs to stderr, or to a file while a live view owns the terminal. Times are UTC."""
    stream: TextIO = sys.stderr
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("a", encoding="utf-8", buffering=1)
    on_terminal = stream.isatty()
    renderer = (
        # Frames with all their variables take minutes to draw.
        structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
        if on_terminal
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if on_terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=stream, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
