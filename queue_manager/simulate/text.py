"""The JSON text of a scenario file, and values in it that no later step can read or print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queue_manager.engine.quantities import MOST_DIGITS
from queue_manager.simulate.problem import ScenarioError

_LONE = re.compile("[\ud800-\udfff]")
_MAYBE_LONE = re.compile(rb"\\u[dD][89a-fA-F]")


class _TooLong:
    """Stands for a number with more digits than Python converts."""


def read_json(path: Path) -> Any:
    """The decoded content of a file. Raises ScenarioError."""
    try:
        text = path.read_bytes()
        content = _decoded(text)
    except OSError as error:
        raise ScenarioError(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"is not UTF-8 text: the first wrong byte is at {error.start}") from None
    except json.JSONDecodeError as error:
        raise ScenarioError(f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ScenarioError("is nested too deeply") from None
    if _MAYBE_LONE.search(text):
        _refuse(content, _is_lone, "has half of a surrogate pair, which is no character (write it as UTF-8)")
    return content


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # only whole numbers of thousands of digits are left
        content = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= MOST_DIGITS else _TooLong())
        _refuse(content, lambda value: isinstance(value, _TooLong), f"has more than {MOST_DIGITS} digits")
        raise


def _is_lone(value: Any) -> bool:
    return isinstance(value, str) and _LONE.search(value) is not None


def _refuse(content: Any, bad: Callable[[Any], bool], message: str) -> None:
    """Raises ScenarioError for the first bad key or value. Keeps its own stack: the content may be deep."""
    pending: list[tuple[str, Any]] = [("", content)]
    while pending:
        path, value = pending.pop()
        if bad(value):
            raise ScenarioError(f"{path or 'the file'}: {message}")
        if isinstance(value, list):
            pending += reversed([(f"{path}[{index}]", item) for index, item in enumerate(value)])
        elif isinstance(value, dict):
            for key in value:
                if bad(key):
                    raise ScenarioError(f"{path or 'the file'}: the name of a field: {message}")
            pending += reversed([(f"{path}.{key}" if path else key, item) for key, item in value.items()])
