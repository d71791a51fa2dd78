"""The conversion of a spoken conversation to messages for strict chat templates."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.items import ImagePart
from engines.base import Message, ToolCall
from engines.llm.chat_messages import EMPTY_USER_TEXT, chat_messages


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "on", {"n": 1})


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(content: str, *ids: str) -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "on", "arguments": '{"n":1}'}}
        for i in ids
    ]
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "{}"}


def U(words: str) -> Message:  # noqa: N802 - one letter, so that a conversation fits a line
    return Message("user", words)


def A(words: str, *calls: str) -> Message:  # noqa: N802
    return Message("assistant", words, tuple(map(call, calls)))


def S(words: str) -> Message:  # noqa: N802
    return Message("system", words)


def T(call_id: str) -> Message:  # noqa: N802
    return Message("tool", "{}", call_id=call_id)


CHATS: dict[str, tuple[list[Message], list[dict[str, Any]]]] = {
    "plain": ([S("s"), U("a"), A("b")], [{"role": "system", "content": "s"}, user("a"), said("b")]),
    "system messages first, as one": (
        [S("s"), U("a"), S("t")],
        [{"role": "system", "content": "s\n\nt"}, user("a")],
    ),
    "pieces of a sentence": ([U("turn on the"), U("lights")], [user("turn on the\nlights")]),
    "an assistant that began": (
        [A("ding"), U("a")],
        [user(EMPTY_USER_TEXT), said("ding"), user("a")],
    ),
    "nobody said anything": ([], [user(EMPTY_USER_TEXT)]),
    "text and call are one message": (
        [U("a"), A("wait"), A("", "1"), T("1")],
        [user("a"), said("wait", "1"), result("1")],
    ),
    "two rounds of tools": (
        [U("a"), A("", "1"), T("1"), A("", "2"), T("2"), A("b")],
        [user("a"), said("", "1"), result("1"), said("", "2"), result("2"), said("b")],
    ),
    "parallel calls": (
        [U("a"), A("", "1", "2"), T("2"), T("1")],
        [user("a"), said("", "1", "2"), result("1"), result("2")],
    ),
    "a late result": (
        [U("a"), A("", "1"), U("b"), T("1")],
        [user("a"), said("", "1"), result("1"), user("b")],
    ),
    "a result that never came": ([U("a"), A("", "1"), U("b")], [user("a\nb")]),
    "a result without a call": ([U("a"), T("9")], [user("a")]),
}


@pytest.mark.parametrize("case", CHATS)
def test_a_spoken_conversation_suits_a_strict_template(case: str) -> None:
    messages, chat = CHATS[case]
    assert chat_messages(messages) == chat


ROLES = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.tuples(ROLES, st.text(max_size=3), st.integers(0, 3)), max_size=12))
def test_any_conversation_suits_a_strict_template(turns: list[tuple[Any, str, int]]) -> None:
    made = []
    for at, (role, words, number) in enumerate(turns):
        calls = (call(f"{at}"),) if role == "assistant" and number else ()
        made.append(Message(role, words, calls, f"{number}" if role == "tool" else ""))
    chat = chat_messages(made)
    roles = [one["role"] for one in chat]
    assert "system" not in roles[1:]
    talk = [one for one in chat if one["role"] != "system"]
    assert talk[0]["role"] == "user"
    for one, following in pairwise(talk):
        if one["role"] == following["role"] == "assistant":
            pytest.fail("two answers in a row")
        assert (one["role"], following["role"]) != ("user", "user")
        assert following["role"] != "tool" or one["role"] in ("assistant", "tool")


def test_images_follow_the_text_of_their_message() -> None:
    seen = tuple(ImagePart(f"data:{n}", "low") for n in range(3))
    messages = [
        Message("user", "look", images=seen[:1]),
        Message("user", images=seen[1:2]),
        Message("assistant", "I see."),
        Message("user", images=seen[2:]),
    ]
    shown = [
        {"type": "image_url", "image_url": {"url": image.url, "detail": "low"}} for image in seen
    ]
    assert chat_messages(messages) == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, *shown[:2]]},
        said("I see."),
        {"role": "user", "content": shown[2:]},
    ]


def test_the_name_of_a_speaker_stands_before_their_words() -> None:
    messages = [
        Message("user", "turn on the light", speaker="Anna"),
        Message("user", "and the fan", speaker="Ben"),
        Message("user", speaker="Ben"),
        Message("assistant", "Done."),
        Message("user", "thanks"),
    ]
    assert chat_messages(messages) == [
        {"role": "user", "content": "Anna says: turn on the light\nBen says: and the fan"},
        said("Done."),
        {"role": "user", "content": "thanks"},
    ]


def test_arguments_for_templates_are_objects() -> None:
    chat = chat_messages([U("a"), A("", "1"), T("1")], arguments_as_text=False)
    calls = chat[1]["tool_calls"]
    assert isinstance(calls, list)
    assert calls[0]["function"]["arguments"] == {"n": 1}
