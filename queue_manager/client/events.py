"""Server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html reads them."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `id` is where to resume after it, `type` its name, `data` its text."""

    id: str
    type: str
    data: str

    def json(self) -> Any:
        """`data` read as JSON."""
        return json.loads(self.data)


class EventReader:
    """Turns bytes into events. `last_id` and `pause` (seconds until the next try, None where the server does not say)
    are what a reconnection goes by."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.pause: float | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._skip_newline = False
        self._data: list[str] = []
        self._type = ""
        self._id = last_id

    def begin(self) -> None:
        """A new connection: what the one before had left unfinished is void."""
        self._decoder.reset()
        self._rest, self._skip_newline = "", False
        self._data, self._type, self._id = [], "", self.last_id

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Events that the chunk completes."""
        for line in self._lines(self._decoder.decode(chunk)):
            if line:
                self._field(line)
                continue
            self.last_id = self._id
            if self._data:
                yield Event(self.last_id, self._type or "message", "\n".join(self._data))
            self._data, self._type = [], ""

    def _lines(self, text: str) -> Iterator[str]:
        """Whole lines; they end in CR LF, LF or CR, and a chunk may end between CR and LF."""
        if self._skip_newline and text:
            text = text.removeprefix("\n")
            self._skip_newline = False
        text = self._rest + text
        start = 0
        while True:
            ends = [end for end in (text.find("\r", start), text.find("\n", start)) if end >= 0]
            if not ends:
                break
            end = min(ends)
            yield text[start:end]
            start = end + 1
            if text[end] == "\r":
                if start == len(text):
                    self._skip_newline = True
                elif text[start] == "\n":
                    start += 1
        self._rest = text[start:]

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdecimal() and value.isascii():
            self.pause = int(value) / 1000
