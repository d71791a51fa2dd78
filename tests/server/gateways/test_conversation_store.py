"""Copies of conversations in the parent: what is kept, who may claim it, and when it is dropped."""

import pytest

from server.gateways.conversation_store import (
    RESUME_LIMIT_S,
    ConversationStore,
    KeepRequest,
    KeptRecord,
    LostNotice,
    ResendRequest,
    difference,
)


def change(key: str, unchanged: int = 0, *names: str, text: bytes = b"text") -> KeepRequest:
    return KeepRequest(key, unchanged, names, dict.fromkeys(names, text), b"facts")


def record(*texts: bytes) -> KeptRecord:
    return KeptRecord(texts, b"facts")


def test_a_conversation_grows_and_is_claimed() -> None:
    store = ConversationStore()
    assert store.keep(change("a", 0, "1", "2"), gateway=1) is None
    assert store.keep(change("a", 2, "3", text=b"more"), gateway=1) is None
    assert store.keep(change("a", 1, "2", "3", text=b"cut"), gateway=1) is None
    assert store.claim("a", gateway=1) == (None, None)  # it has the newest copy
    assert store.claim("a", gateway=2) == (record(b"text", b"cut", b"cut"), 1)
    assert store.claim("b", gateway=2) == (None, None)


def test_only_the_gateway_that_claimed_it_last_changes_it() -> None:
    store = ConversationStore()
    store.keep(change("a", 0, "1"), gateway=1)
    store.claim("a", gateway=2)
    assert store.keep(change("a", 1, "2"), gateway=1) == LostNotice("a")
    store.release("a", gateway=1)
    assert store.keep(change("a", 0, "1", "3"), gateway=2) is None
    assert store.claim("a", gateway=3) == (record(b"text", b"text"), 2)


def test_a_change_without_its_conversation_asks_for_the_whole() -> None:
    store = ConversationStore()
    assert store.keep(change("a", 1, "2"), gateway=1) == ResendRequest("a")
    store.keep(change("a", 0, "1"), gateway=1)
    missing = KeepRequest("a", 1, ("2",), {}, b"facts")
    assert store.keep(missing, gateway=1) == ResendRequest("a")


def test_what_nobody_claims_expires() -> None:
    store = ConversationStore()
    store.keep(change("a", 0, "1"), gateway=1)
    store.keep(change("b", 0, "1"), gateway=2)
    store.expire(10 * RESUME_LIMIT_S)
    store.gateway_ended(1, now_s=5.0)
    store.expire(4.0 + RESUME_LIMIT_S)
    assert store.count == 2
    store.expire(5.0 + RESUME_LIMIT_S)
    assert store.count == 1
    assert store.claim("b", gateway=3)[1] == 2


def test_memory_is_bounded() -> None:
    store = ConversationStore(max_conversations=2, max_bytes=100)
    for key in ("a", "b", "c"):
        store.keep(change(key, 0, "1", text=b"x" * 20), gateway=1)
    assert (store.count, store.size_bytes) == (2, 50)
    assert store.claim("a", gateway=2)[0] is None  # unchanged for the longest time
    store.keep(change("d", 0, "1", text=b"x" * 90), gateway=1)
    assert (store.count, store.size_bytes) == (1, 95)


def test_forgotten_conversations_are_gone() -> None:
    store = ConversationStore()
    for key in ("key_1/a", "key_1/b", "key_10/a", "a"):
        store.keep(change(key, 0, "1"), gateway=1)
    store.forget_owner("key_1/")
    assert store.forget("a") == 1
    assert store.forget("a") is None
    assert (store.count, store.size_bytes) == (1, 9)


@pytest.mark.parametrize(
    ("before", "after", "unchanged", "changed"),
    [
        ("", "ab", 0, [0, 1]),
        ("ab", "abc", 2, [2]),
        ("ab", "aB", 1, [1]),
        ("abc", "bc", 0, []),
        ("ab", "axb", 1, [1]),
        ("ab", "", 0, []),
    ],
)
def test_only_differences_are_sent(
    before: str, after: str, unchanged: int, changed: list[int]
) -> None:
    texts = {letter: letter for letter in before + after}
    named = [[(name, texts[name]) for name in names] for names in (before, after)]
    assert difference(*named) == (unchanged, changed)


def test_another_version_of_an_item_is_sent() -> None:
    assert difference([("a", "one"), ("b", "two")], [("a", "one"), ("b", "new")]) == (2, [1])
