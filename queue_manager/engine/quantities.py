"""Kubernetes quantities as integers in base units: milli-CPU for `cpu`, bytes or counts for everything else.

Grammar and rounding are those of `resource.Quantity` (apimachinery): a decimal number with a binary suffix, a decimal
suffix or an exponent; what is finer than the base unit is rounded up, so that a request is never counted too small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

K = TypeVar("K")

MOST_DIGITS = 1000
"""Of a number that is read: Python converts no more than some thousands."""
CPU = "cpu"
PODS = "pods"
_PORT = "hostPort/"


def port_resource(port: int) -> str:
    """A host port as a resource of which every node has one, less what pods that we do not manage take of it."""
    return f"{_PORT}{port}"


def port_of(resource: str) -> int | None:
    """The host port that a resource stands for, None for an ordinary resource."""
    return int(resource.removeprefix(_PORT)) if resource.startswith(_PORT) else None


_SUFFIXES: Mapping[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{name: Fraction(10 ** (3 * power)) for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Fraction(2 ** (10 * power)) for power, name in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[a-zA-Z]{0,2}))"
)
_BINARY = tuple(reversed([(f"{name}i", 1 << (10 * power)) for power, name in enumerate("KMGTPE", start=1)]))
_BYTES = ("memory", "storage", "ephemeral-storage")


def exact(text: str | int) -> Fraction:
    """The exact value of a quantity, e.g. `1500m` -> 3/2. Raises ValueError that says what is wrong."""
    written = str(text).strip()
    if len(written) > MOST_DIGITS:
        raise ValueError(f"'{written[:20]}...' has {len(written)} characters, a quantity has at most {MOST_DIGITS}")
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity: want a number with one of the suffixes n u m k M G T P E Ki..Ei")
    suffix = match["suffix"] or ""
    if suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    return Fraction(match["number"]) * _SUFFIXES[suffix] * Fraction(10) ** int(match["exponent"] or 0)


def parse(resource: str, text: str | int) -> int:
    """The amount of `resource` in base units, rounded up. Raises ValueError for what is no quantity, or is negative."""
    value = exact(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative; an amount of {resource} is at least 0")
    scaled = value * 1000 if resource == CPU else value
    return -(-scaled.numerator // scaled.denominator)


def added(*several: Mapping[K, int]) -> dict[K, int]:
    """The sum of amounts, key by key."""
    total: dict[K, int] = {}
    for amounts in several:
        for key, amount in amounts.items():
            total[key] = total.get(key, 0) + amount
    return total


def show(resource: str, amount: int) -> str:
    """The amount for people, exact: `1.5` CPUs, `64Gi` of memory, `8` GPUs."""
    if resource == CPU:
        sign, whole, rest = "-" if amount < 0 else "", *divmod(abs(amount), 1000)
        return f"{sign}{whole}" + (f".{rest:03}".rstrip("0") if rest else "")
    if resource in _BYTES or resource.startswith("hugepages-"):
        for suffix, unit in _BINARY:
            if amount and amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)


def show_time(micros: int) -> str:
    """A time in microseconds since the Unix epoch as people write it, to the second, in UTC."""
    days, seconds = divmod(micros // 1_000_000, 86_400)
    # Years begin in March here, so that the leap day is the last one; an era is the 400 years after which all repeats.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year, month = year + era * 400 + (month >= 10), (month + 2) % 12 + 1
    return f"{year:04}-{month:02}-{day + 1:02} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
