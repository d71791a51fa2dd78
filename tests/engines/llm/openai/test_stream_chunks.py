"""The parts of a streamed completion, without a server: events, thoughts, calls, settings."""

import json
from typing import Any

import pytest

from core.errors import ConfigError, RemoteProtocolError
from engines.base import ToolCall
from engines.llm.openai.chunks import read_chunk
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import Settings
from engines.llm.openai.tool_calls import MAX_ARGUMENT_CHARS, MAX_CALLS, ToolCallAssembler
from engines.llm.reasoning_filter import ReasoningFilter
from engines.registry import load
from engines.runtime.openai_http.sse import MAX_EVENT_BYTES, SseReader

STREAMS = [
    ("data: a\n\ndata: b\n\n", ["a", "b"]),
    ("data:a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
    (": wait\n\nevent: x\nid: 7\ndata: {\ndata: }\n\n", ["{\n}"]),
    ("data: no empty line", ["no empty line"]),
    ("data: ä你🎈\n\n\n\n", ["ä你🎈"]),
    ("", []),
]


@pytest.mark.parametrize(("wire", "events"), STREAMS)
def test_events_are_read_in_any_split(wire: str, events: list[str]) -> None:
    data = wire.encode()
    for cut in range(len(data) + 1):
        reader = SseReader()
        found = [*reader.receive_data(data[:cut]), *reader.receive_data(data[cut:])]
        last = reader.end()
        assert [*found, *([] if last is None else [last])] == events


@pytest.mark.parametrize(
    "data",
    [b"x" * (MAX_EVENT_BYTES + 1), (b"data: " + b"x" * 60_000 + b"\n") * 20, b"data: \xff\n\n"],
)
def test_oversized_and_undecodable_events_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(SseReader().receive_data(data))


THOUGHTS = [
    ("<think>\nthey greet\n</think>\n\nHello.", False, "Hello."),
    ("Hello.", False, "Hello."),
    ("<THINK>no</THINK>Yes <think>no</think>and no", False, "Yes and no"),
    ("[THINK]no[/THINK]Yes", False, "Yes"),
    ("they greet</think>Hello.", True, "Hello."),
    ("Hello.</think>", False, "Hello."),
    ("<think>for ever", False, ""),
    ("2 < 3 and <thin ice", False, "2 < 3 and <thin ice"),
    ("a list [1] [t", False, "a list [1] [t"),
    ("<<think>x</think>>", False, "<>"),
]


@pytest.mark.parametrize(("written", "starts", "said"), THOUGHTS)
def test_thoughts_are_never_spoken(written: str, starts: bool, said: str) -> None:
    for first in range(len(written) + 1):
        for second in range(first, len(written) + 1):
            thoughts = ReasoningFilter(starts)
            pieces = (written[:first], written[first:second], written[second:])
            assert "".join(map(thoughts.push, pieces)) + thoughts.end() == said


def test_text_is_held_back_no_longer_than_necessary() -> None:
    thoughts = ReasoningFilter()
    assert thoughts.push("Hello") == "Hello"
    assert thoughts.push(" you <") == " you "
    assert thoughts.push("3") == "<3"


def part(**fields: Any) -> dict[str, Any]:
    return fields


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]] = {
    "in pieces": (
        [
            part(index=0, id="a", type="function", function=function("on", "")),
            part(index=0, function={"arguments": '{"area": '}),
            part(index=0, function={"arguments": '"kitchen"}'}),
        ],
        [("a", "on", {"area": "kitchen"})],
    ),
    "two at once, woven": (
        [
            part(index=0, id="a", function=function("on", '{"n"')),
            part(index=1, id="b", function=function("off", '{"n":')),
            part(index=0, function={"arguments": ": 1}"}),
            part(index=1, function={"arguments": " 2}"}),
        ],
        [("a", "on", {"n": 1}), ("b", "off", {"n": 2})],
    ),
    "whole, all counted 0": (
        [
            part(index=0, id="a", function=function("on", '{"n": 1}')),
            part(index=0, id="b", function=function("off", '{"n": 2}')),
        ],
        [("a", "on", {"n": 1}), ("b", "off", {"n": 2})],
    ),
    "whole, not counted, without ids": (
        [part(function=function("on", {"n": 1})), part(function=function("off", {"n": 2}))],
        [("", "on", {"n": 1}), ("", "off", {"n": 2})],
    ),
    "in pieces, not counted": (
        [part(id="a", function=function("on", '{"n":')), part(function={"arguments": "1}"})],
        [("a", "on", {"n": 1})],
    ),
    "id and name with every piece": (
        [
            part(index=0, id="a", function=function("on", '{"n":')),
            part(index=0, id="a", function=function("on", "1}")),
        ],
        [("a", "on", {"n": 1})],
    ),
    "arguments are an object": (
        [part(index=0, id="a", function=function("on", {"n": 1}))],
        [("a", "on", {"n": 1})],
    ),
    "no arguments": (
        [
            part(index=0, id="a", function=function("on", "")),
            part(index=1, id="b", function=function("off")),
            part(index=2, id="c", function=function("up", "null")),
        ],
        [("a", "on", {}), ("b", "off", {}), ("c", "up", {})],
    ),
    "one id for two": (
        [
            part(index=0, id="a", function=function("on")),
            part(index=1, id="a", function=function("off")),
        ],
        [("a", "on", {}), ("", "off", {})],
    ),
}


def test_parts_of_calls_are_reported_while_they_arrive() -> None:
    calls = ToolCallAssembler()
    reported: list[tuple[str, str, str]] = []
    for one in (
        part(index=0, id="a", function={"arguments": '{"n"'}),
        part(index=0, function=function("on", ": 1")),
        part(index=1, id="a", function=function("off", "")),
        part(index=0, function={"arguments": "}"}),
        part(index=1, function={"arguments": "{}"}),
    ):
        chunk = read_chunk(json.dumps({"choices": [{"delta": {"tool_calls": [one]}}]}))
        for choice in chunk.choices or ():
            deltas = calls.push(choice.addition.tool_calls or ())
            reported += [(delta.call_id, delta.name, delta.arguments) for delta in deltas]
    on, off = calls.calls()
    assert on.call_id == "a" != off.call_id
    assert reported == [
        ("a", "on", '{"n": 1'),
        ("a", "on", "}"),
        (off.call_id, "off", "{}"),
    ]


def assembled(parts: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    calls = ToolCallAssembler()
    for one in parts:
        chunk = read_chunk(json.dumps({"choices": [{"delta": {"tool_calls": [one]}}]}))
        for choice in chunk.choices or ():
            calls.push(choice.addition.tool_calls or ())
    return calls.calls()


@pytest.mark.parametrize("case", CALLS)
def test_calls_are_assembled_from_parts(case: str) -> None:
    parts, expected = CALLS[case]
    made = assembled(parts)
    assert [(call.name, call.arguments) for call in made] == [(n, a) for _, n, a in expected]
    for call, (call_id, _, _) in zip(made, expected, strict=True):
        assert call.call_id == call_id or (not call_id and call.call_id.startswith("call_"))
    assert len({call.call_id for call in made}) == len(made)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part(index=0, id="a", function=function("on", '{"n": 1'))], "'on' whose arguments"),
        ([part(index=0, id="a", function=function("on", "[1]"))], "not a JSON object"),
        ([part(index=0, id="a", function={"arguments": "{}"})], "without a name"),
        ([part(index=i, function=function("on")) for i in range(MAX_CALLS + 1)], "more than 64"),
        (
            [part(index=0, function=function("on", "x" * (MAX_ARGUMENT_CHARS + 1)))],
            "more than 262144",
        ),
    ],
)
def test_malformed_calls_are_refused(parts: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        assembled(parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "base_url"),
        ({"base_url": "ftp://host/v1"}, "ftp://host/v1"),
        ({"base_url": "http://"}, "not an http"),
        ({"base_url": "http://host:99999/v1"}, "not an http"),
        ({"base_url": "http://me:secret@host/v1"}, "api_key"),
        ({"base_url": "http://h/v1", "api_key": "a", "api_key_file": "b"}, "both set"),
        ({"base_url": "http://h/v1", "api_key_file": "/nowhere/key"}, "/nowhere/key"),
        ({"base_url": "http://h/v1", "api_key": "a\nb"}, "printable"),
        ({"base_url": "http://h/v1", "temperature": 3}, "<= 2"),
        ({"base_url": "http://h/v1", "modle": "x"}, "modle"),
    ],
)
def test_the_error_names_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load("llm", "openai", options)
    assert "secret" not in str(caught.value)


def test_no_secret_is_in_a_repr() -> None:
    settings = Settings(base_url="http://h/v1", api_key="sk-1", extra_body={"user": "sk-2"})
    assert "sk-" not in repr(settings)
    assert "sk-" not in repr(OpenAiLlm(settings))
