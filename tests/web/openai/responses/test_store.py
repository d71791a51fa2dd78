"""Responses that are kept: bounded, and each for its own key."""

import pytest

from core.access.named_key import CALLER_KEY, NamedKey
from core.errors import NotFound
from web.openai.responses.store import MAX_BYTES, MAX_RESPONSES, ResponseStore

EMPTY: dict[str, object] = {"output": []}
ADA, BEN = NamedKey("1", "ada", ("talk",)), NamedKey("2", "ben", ("talk",))


def test_the_oldest_are_forgotten_first() -> None:
    store = ResponseStore()
    for number in range(MAX_RESPONSES + 1):
        store.keep(str(number), EMPTY, (), 1)
    assert store.get("1").messages == ()
    with pytest.raises(NotFound):
        store.get("0")
    store.keep("large", EMPTY, (), MAX_BYTES)
    with pytest.raises(NotFound):
        store.get(str(MAX_RESPONSES))
    store.keep("too large", EMPTY, (), MAX_BYTES + 1)
    with pytest.raises(NotFound):
        store.get("too large")
    store.forget("large")
    with pytest.raises(NotFound):
        store.get("large")


def test_a_key_reaches_only_its_own_responses() -> None:
    store = ResponseStore()
    token = CALLER_KEY.set(ADA)
    try:
        store.keep("adas", {"id": "adas", **EMPTY}, (), 1)
        assert store.get("adas").body["id"] == "adas"
        CALLER_KEY.set(BEN)
        with pytest.raises(NotFound):
            store.get("adas")
        with pytest.raises(NotFound):
            store.forget("adas")
        CALLER_KEY.set(None)
        assert store.get("adas").body["id"] == "adas", "the owner reaches all"
    finally:
        CALLER_KEY.reset(token)


def test_an_item_is_found_as_long_as_its_response_is_kept() -> None:
    store, item = ResponseStore(), {"id": "msg_1", "type": "message"}
    token = CALLER_KEY.set(ADA)
    try:
        store.keep("adas", {"output": [item]}, (), 1)
        assert store.item("msg_1", "input[0].id") == item
        CALLER_KEY.set(BEN)
        with pytest.raises(NotFound) as refused:
            store.item("msg_1", "input[0].id")
        assert (refused.value.code, refused.value.param) == ("item_not_found", "input[0].id")
        CALLER_KEY.set(ADA)
        store.forget("adas")
        with pytest.raises(NotFound):
            store.item("msg_1", "input[0].id")
        store.keep("adas", {"output": [item]}, (), 1)
        store.keep("large", EMPTY, (), MAX_BYTES)
        with pytest.raises(NotFound):
            store.item("msg_1", "input[0].id")
    finally:
        CALLER_KEY.reset(token)
