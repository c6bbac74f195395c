"""`--watch`: an answer again and again, when the server tells that something happened, else every few seconds."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from queue_manager.cli.client import Client
from queue_manager.cli.errors import CommandError
from queue_manager.cli.output import Format, colours, print_data, terminal_width

POLL = 2.0
"""Seconds between two looks at a server that tells of nothing."""
LONGEST = 10.0
"""Seconds between two looks where nothing was told: ages and estimates change all the same."""
SHORTEST = 0.5
"""Seconds that pass at least between two looks."""
CLEAR = "\x1b[H\x1b[2J\x1b[3J"


class Shown(Protocol):
    """A table or text."""

    @property
    def empty(self) -> str: ...

    def lines(self, width: int = 0, coloured: bool = False) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class View:
    """One command's answer: how to read it, how people see it, which things are in it and what they are called."""

    read: Callable[[], Any]
    shown: Callable[[Any], Shown]
    things: Callable[[Any], Iterable[Any]] = lambda data: data["items"]
    name: Callable[[Any], str] | None = None

    def names(self, data: Any) -> list[str] | None:
        """Names of the things."""
        name = self.name
        return None if name is None else [name(thing) for thing in self.things(data)]


def present(client: Client, view: View, form: Format, watch: bool = False) -> None:
    """Prints an answer, once or until interrupted."""
    if watch:
        follow(client, view, form)
        return
    data = view.read()
    if form is not Format.TABLE:
        print_data(data, form, view.names(data) if form is Format.NAME else None)
        return
    shown = view.shown(data)
    for line in shown.lines(terminal_width(), colours()):
        print(line)
    if shown.empty:
        print(shown.empty, file=sys.stderr)


def follow(client: Client, view: View, form: Format, looks: int = 0) -> None:
    """Until interrupted (or for a number of looks): on a terminal the screen is drawn anew, elsewhere a line is printed
    for what is new or has changed."""
    news = News(client)
    printer = _screen if form is Format.TABLE and sys.stdout.isatty() else _Changes(view, form)
    try:
        count = 0
        while True:
            try:
                data = view.read()
            except CommandError as error:
                if count == 0:
                    raise
                print(f"{error.message}; trying again", file=sys.stderr)
            else:
                printer(view.shown(data) if printer is _screen else data)
            count += 1
            if count == looks:
                return
            news.wait()
    except KeyboardInterrupt:
        print()


def _screen(shown: Shown) -> None:
    width, height = shutil.get_terminal_size()
    lines = shown.lines(width, colours()) or [shown.empty]
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"... and {len(lines) - height + 2} more lines"]
    sys.stdout.write(CLEAR + "\n".join(lines) + "\n")
    sys.stdout.flush()


class _Changes:
    """Prints only what was not there at the look before."""

    def __init__(self, view: View, form: Format) -> None:
        self._view = view
        self._form = form
        self._before: set[str] = set()

    def __call__(self, data: Any) -> None:
        lines = list(self._lines(data))
        for line in lines:
            if line not in self._before:
                print(line, flush=True)
        self._before = set(lines)

    def _lines(self, data: Any) -> Iterable[str]:
        if self._form is Format.TABLE:
            return self._view.shown(data).lines()
        if self._form is Format.NAME:
            return self._view.names(data) or ()
        if self._form is Format.JSON:
            return (json.dumps(thing, ensure_ascii=False) for thing in self._view.things(data))
        import yaml

        dumped = (yaml.safe_dump(thing, sort_keys=False, allow_unicode=True) for thing in self._view.things(data))
        return (f"---\n{text.rstrip()}" for text in dumped)


class News:
    """Waits for the server's events in a thread of its own; where it has none, time alone counts."""

    def __init__(self, client: Client) -> None:
        self._happened = threading.Event()
        self._told = threading.Event()
        self._client = client
        threading.Thread(target=self._listen, daemon=True, name="events").start()

    def _listen(self) -> None:
        try:
            for _ in self._client.events(opened=self._told.set):
                self._happened.set()
        except CommandError:
            pass
        self._told.clear()

    def wait(self) -> None:
        """Until something happened or it is time to look anyway."""
        time.sleep(SHORTEST)
        self._happened.wait((LONGEST if self._told.is_set() else POLL) - SHORTEST)
        self._happened.clear()


def one(read: Callable[[], Any], lines: Callable[[Any], Shown], name: Callable[[Any], str] | None = None) -> View:
    """A view of one thing."""
    return View(read, lines, lambda data: (data,), name)
