"""Arguments that can be parsed but not written again must not enter a conversation."""

import json

import pytest

from core.conversation.items import FunctionCallItem
from core.errors import RequestError
from pipeline.conversation.context_window import message_tokens
from pipeline.conversation.history import History
from pipeline.tools.calls.arguments import MAX_DEPTH, ArgumentCheck, is_too_deep, parse_arguments


def test_patterns_are_not_checked_at_any_level() -> None:
    named = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}}
    inner = {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}
    for schema in (named, inner):
        ArgumentCheck(schema).check({"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"})


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "null",
        "[]",
        "{",
        '{"a":NaN}',
        '{"a":"\\ud800"}',
        "{'a':1}",
        '"\ud800"',
        nested(MAX_DEPTH + 1),
        nested(5000),
        '{"a":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_arguments_that_cannot_be_written_again_are_refused(arguments: str) -> None:
    with pytest.raises(RequestError) as caught:
        History().add(FunctionCallItem("a", "call", "tool", arguments))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "item.arguments")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("arguments", ["{}", '{"a":"\\u00fc\\n"}', nested(MAX_DEPTH)])
def test_valid_arguments_reach_the_model(arguments: str) -> None:
    history = History()
    history.add(FunctionCallItem("a", "call", "tool", arguments))
    [call, _] = history.messages("")
    assert call.tool_calls[0].arguments == json.loads(arguments) == parse_arguments(arguments)
    assert message_tokens(call) > 0


def test_lists_and_objects_count_alike_as_levels() -> None:
    assert not is_too_deep([{"a": [1]}], 3)
    assert is_too_deep([{"a": [1]}], 2)
    assert not is_too_deep("deep", 0)
