"""Reading objects that others wrote: a cursor that knows its path, so that bad input is a message and never a crash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from queue_manager.engine import quantities
from queue_manager.kinds.kind import Unresolvable

MALFORMED = "Malformed"


class Borrowed(str):
    """A value read from a key of somebody else's as if it stood under ours: messages name the `key` of its user."""

    key: str

    def __new__(cls, text: str, key: str = "") -> Borrowed:
        """`text` is the value as ours would say it."""
        made = super().__new__(cls, text)
        made.key = key
        return made


def written_as(values: Mapping[str, Any], key: str) -> str:
    """The key under which the user has written what is read as the value of `key`."""
    value = values.get(key)
    return value.key if isinstance(value, Borrowed) else key


class View:
    """A value inside an object together with its path there. `value` is None where nothing is given."""

    __slots__ = ("_around", "_step", "value")

    def __init__(self, value: Any, path: str | int = "", around: View | None = None) -> None:
        """`path` is that of the value, or with `around` the step from there: a name, or an index of a list."""
        self.value = value
        self._step = path
        self._around = around

    @property
    def path(self) -> str:
        """The whole path: written when it is asked for, since most fields are well."""
        if self._around is None:
            return str(self._step)
        before = self._around.path
        if isinstance(self._step, int):
            return f"{before}[{self._step}]"
        return f"{before}{self._step}" if not before or before.endswith(": ") else f"{before}.{self._step}"

    def __getitem__(self, key: str) -> View:
        """The field of that name; a missing one is a View of None. Raises Unresolvable where this is no object."""
        return View(self.mapping().get(key), key, self)

    def instead(self, value: Any) -> View:
        """Another value at the same place."""
        return View(value, self._step, self._around)

    def at(self, *keys: str) -> View:
        """A field further down."""
        view = self
        for key in keys:
            view = view[key]
        return view

    @property
    def given(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def malformed(self, wanted: str) -> Unresolvable:
        """The error to raise: this field must be `wanted`."""
        return Unresolvable(MALFORMED, self.path, f"{self.path} must be {wanted}")

    def mapping(self) -> Mapping[str, Any]:
        """The object here, {} where none is given."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.malformed("an object")
        return self.value

    def items(self) -> Iterator[View]:
        """The elements of the list here, none where none is given."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.malformed("a list")
        for index, element in enumerate(self.value):
            yield View(element, index, self)

    def text(self, default: str = "") -> str:
        """The string here."""
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            raise self.malformed("a string")
        return str(self.value)  # what is kept of it is no `Borrowed`

    def integer(self, default: int) -> int:
        """The whole number here."""
        if self.value is None:
            return default
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.malformed("a whole number")
        return self.value

    def count(self, default: int) -> int:
        """The whole number here, which must not be negative."""
        number = self.integer(default)
        if number < 0:
            raise self.malformed("zero or more")
        return number

    def boolean(self, default: bool = False) -> bool:
        """The truth value here."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self.malformed("true or false")
        return self.value

    def texts(self) -> dict[str, str]:
        """The map of strings here."""
        for key, value in self.mapping().items():
            if not isinstance(value, str):
                raise View(value, f"{self.path}.{key}").malformed("a string")
        return dict(self.mapping())

    def amounts(self) -> dict[str, int]:
        """The resource list here, in base units (milli-CPU, bytes, counts)."""
        amounts = {}
        for name, quantity in self.mapping().items():
            field = View(quantity, f"{self.path}.{name}")
            if isinstance(quantity, bool) or not isinstance(quantity, (str, int, float)):
                raise field.malformed("a quantity")
            try:
                amount = _amount(name, str(quantity))
            except (ValueError, ArithmeticError) as error:
                raise field.malformed(f"a quantity ({error})") from error
            if amount < 0:
                raise field.malformed("zero or more")
            amounts[name] = amount
        return amounts


@lru_cache(maxsize=65_536)
def _amount(resource: str, text: str) -> int:
    # The same few texts come again and again, and exact parsing is slow.
    return quantities.parse(resource, text)


def identity(obj: Mapping[str, Any]) -> str:
    """`uid/generation` of an object; kinds without a generation (ConfigMap, LimitRange) give their resourceVersion."""
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('uid', '')}/{metadata.get('generation') or metadata.get('resourceVersion') or ''}"


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of its controller."""
    for reference in (obj.get("metadata") or {}).get("ownerReferences") or []:
        if isinstance(reference, dict) and reference.get("controller"):
            return reference
    return None


def is_controlled_by(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with this uid is its controller."""
    owner = controller_of(obj)
    return owner is not None and bool(uid) and owner.get("uid") == uid


def suspended(obj: Mapping[str, Any]) -> bool:
    """`spec.suspend`. Never asked from the conditions: they lag behind it."""
    spec = obj.get("spec")
    return isinstance(spec, dict) and spec.get("suspend") is True


def status_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status, {} where there is none; the controllers write it, so bad parts are read as missing."""
    status = obj.get("status")
    return status if isinstance(status, dict) else {}


def told(status: Mapping[str, Any] | None, key: str) -> int:
    """A count of a status, 0 where nothing is told."""
    value = (status or {}).get(key)
    return value if isinstance(value, int) and value > 0 else 0


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The status condition of that type if it is True. The last condition of the list says nothing (sdk#803)."""
    conditions = status_of(obj).get("conditions")
    for entry in conditions if isinstance(conditions, list) else []:
        if isinstance(entry, dict) and entry.get("type") == kind and entry.get("status") == "True":
            return entry
    return None
