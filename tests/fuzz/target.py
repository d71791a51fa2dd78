"""A fuzz target: a function of bytes for one kind of input."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    one_input: Callable[[bytes], None]
    "Asserts what must hold for these bytes; any other exception is a finding, too."
    seeds: tuple[bytes, ...]
    "Valid inputs."
    words: tuple[str, ...] = ()
    "Words that the fuzzer may insert into an input."
    is_json: bool = False
    "Each line is one JSON value, which half of the mutations change as JSON."
    few: int = 10_000
    "Inputs of `make test-real`; `make test` tries a twentieth of them."
    many: int = 1_000_000
    "Inputs of `make soak`."
    max_bytes: int = 4096


def lines(values: Iterable[Any]) -> tuple[bytes, ...]:
    """Returns each value as a seed of its own."""
    return tuple(json.dumps(value).encode() for value in values)
