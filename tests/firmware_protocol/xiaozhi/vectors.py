"""The frames and messages with which every codec of the protocol must agree, in any language."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.shared import ROOT

FOLDER = ROOT / "firmware_protocol" / "vectors" / "xiaozhi"

Case = Mapping[str, Any]


@cache
def _cases() -> Mapping[str, list[Case]]:
    found: Mapping[str, list[Case]] = json.loads((FOLDER / "cases.json").read_text("utf-8"))
    return found


def limits() -> Mapping[str, int]:
    return _cases()["limits"]  # type: ignore[return-value]


def frames(*, good: bool) -> list[Case]:
    return [case for case in _cases()["frames"] if ("expect" in case) is good]


def messages(sender: str, *, good: bool) -> list[Case]:
    cases = [case for case in _cases()["messages"] if case["sender"] == sender]
    return [case for case in cases if ("expect" in case) is good]


def frame_of(case: Case) -> bytes:
    if "file" in case:
        return (FOLDER / str(case["file"])).read_bytes()
    return bytes.fromhex(case["hex"])


def text_of(case: Case) -> str:
    if "text" in case:
        return str(case["text"])
    parts = case["text_parts"]
    return str(parts["before"] + parts["repeat"] * parts["times"] + parts["after"])


def named(case: Case) -> str:
    return str(case["name"])
