"""YAML with the line of every key and item.

Own construction instead of `yaml.safe_load`: lines for messages, duplicate keys found, `on` and `off` are words as in
YAML 1.2, and hostile files (alias bombs, deep nesting, huge size) end in a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from queue_manager.config.problem import Problem

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - PyYAML without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class _Plain(_Loader):
    """Composes nodes without working out their tags, of which nothing is read: `_scalar` decides by the text."""

    def resolve(self, kind: type[yaml.Node], value: object, implicit: object) -> str:
        return ""

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 40
MAX_ALIASED_VALUES = 100_000
MAX_BROKEN = 20
"""Documents of a text that can't be read: after so many of them nothing more is looked at."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,40})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_BEGIN = re.compile(r"---(?=\s|$)")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class Numeral(float):
    """A number with a fraction or exponent that remembers how it was written, so that quantities lose nothing."""

    text: str

    def __new__(cls, text: str) -> Numeral:
        number = super().__new__(cls, text)
        number.text = text
        return number


class LinedDict(dict[str, Any]):
    """A YAML mapping; `line` is its own line, `lines` those of its keys."""

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}

    def rename(self, old: str, new: str) -> None:
        """Gives a value another key and keeps its line."""
        self[new] = self.pop(old)
        self.lines[new] = self.lines.pop(old, self.line)


class LinedList(list[Any]):
    """A YAML sequence; `line` is its own line, `lines` those of its items."""

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


class Document:
    """One YAML document of a file."""

    def __init__(self, file: str, line: int, content: Any) -> None:
        self.file = file
        self.line = line
        self.content = content


def line_of(content: Any, path: Sequence[str | int]) -> int:
    """The line of the value at `path`, or of the nearest existing value around it; 0 when lines are not known."""
    line = getattr(content, "line", 0)
    for step in path:
        if isinstance(content, LinedDict) and step in content:
            line, content = content.lines.get(str(step), line), content[str(step)]
        elif isinstance(content, LinedList) and isinstance(step, int) and step < len(content):
            line, content = content.lines[step], content[step]
        else:
            break
    return line


def read_documents(text: str, file: str) -> tuple[list[Document], list[Problem]]:
    """All documents of a YAML (or JSON) text. Of one that can't be read nothing is answered but the first error; it
    goes on with the next one."""
    if len(text) > MAX_BYTES:
        size = f"{len(text) / 1e6:.0f} MB"
        return [], [Problem(f"the file has {size}, more than {MAX_BYTES // 2**20} MiB", "split it", file=file)]
    documents: list[Document] = []
    builder = _Builder(file)
    begin, rest = 0, text
    for _ in range(MAX_BROKEN):
        broken = _read(rest, documents, builder)
        following = _next_begin(text, max(broken - 1, begin + 1)) if broken else None
        if following is None:
            break
        begin, rest = following, "\n" * following + text[_starts(text)[following] :]
    return documents, builder.problems


def _read(text: str, documents: list[Document], builder: _Builder) -> int:
    """Reads documents until the end, or until a line that can't be understood, which is answered."""
    try:
        for node in _compose(text):
            content = builder.build(node)
            if content is not None:
                documents.append(Document(builder.file, node.start_mark.line + 1, content))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or "cannot be read"
        builder.problem(f"not valid YAML: {reason}", (mark.line + 1) if mark else 0, error.context or "")
        return mark.line + 1 if mark else 0
    except yaml.YAMLError as error:
        builder.problem(f"not valid YAML: {' '.join(str(error).split())}", 0, "only printable UTF-8 text is allowed")
    except RecursionError:
        builder.problem("nested too deeply", 0, f"at most {MAX_DEPTH} levels are read")
    return 0


def _starts(text: str) -> list[int]:
    """Where the lines of a text begin."""
    return [0, *(found.end() for found in _BREAK.finditer(text))]


def _next_begin(text: str, line: int) -> int | None:
    """The first line (0 is the first of all) from this one on that begins a document."""
    starts = _starts(text)
    return next((number for number in range(line, len(starts)) if _BEGIN.match(text, starts[number])), None)


def _compose(text: str) -> Iterator[yaml.Node]:
    _refuse_deep_nesting(text)
    loader = _Plain(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


def _refuse_deep_nesting(text: str) -> None:
    # libyaml's composer recurses in C: a flow collection that is nested some 10,000 levels would end the process.
    depth = 0
    for event in re.finditer(r"[\[\]{}]", text):
        depth = depth + 1 if event[0] in "[{" else max(0, depth - 1)
        if depth > 1000:
            raise RecursionError
    if re.search(r"^ *(?:[-?] ){200}", text, re.MULTILINE):
        raise RecursionError


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._built: set[int] = set()
        self._aliased = 0

    def problem(self, message: str, line: int, hint: str = "") -> None:
        found = Problem(message, hint, file=self.file, line=line)
        if found not in self.problems[-1:]:  # a document that begins in its wrong line is looked at twice
            self.problems.append(found)

    def build(self, node: yaml.Node, depth: int = 0) -> Any:
        if depth == 0:
            self._built.clear()
        # Aliased nodes are built once a use, so this count bounds what an alias bomb can blow up to.
        if id(node) in self._built:
            self._aliased += 1
            if self._aliased > MAX_ALIASED_VALUES:
                raise yaml.MarkedYAMLError(problem="too many values by aliases", problem_mark=node.start_mark)
        self._built.add(id(node))
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                context=f"at most {MAX_DEPTH} levels are read",
                problem="nested too deeply",
                problem_mark=node.start_mark,
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            items = LinedList(node.start_mark.line + 1)
            for child in node.value:
                items.append(self.build(child, depth + 1))
                items.lines.append(child.start_mark.line + 1)
            return items
        return _scalar(node.value, quoted=bool(getattr(node, "style", None)))

    def _mapping(self, node: yaml.MappingNode, depth: int) -> LinedDict:
        mapping = LinedDict(node.start_mark.line + 1)
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem("a key must be a word", line, "quote the key")
                continue
            key = key_node.value
            if key == "<<" and not key_node.style:
                self.problem("YAML merge keys (<<) are not read", line, "write the fields out")
                continue
            if key in mapping:
                self.problem(f"key {key!r} is given twice", line, f"first in line {mapping.lines[key]}; remove one")
                continue
            mapping[key] = self.build(value_node, depth + 1)
            mapping.lines[key] = line
        return mapping


def _scalar(text: str, quoted: bool) -> Any:
    if quoted:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return Numeral(text)
    return text
