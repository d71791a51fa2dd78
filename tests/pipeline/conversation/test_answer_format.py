"""Answers in a form: the request for it, and the check of the text."""

from typing import Any

import pytest

from engines.base import AnswerFormat, Message
from pipeline.conversation.answer_format import (
    MAX_SHOWN_SCHEMA_CHARS,
    InvalidAnswer,
    check_answer,
    check_schema,
    form_messages,
)

LIGHT: dict[str, Any] = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "room": {"enum": ["kitchen", "attic"]}},
    "required": ["on"],
    "additionalProperties": False,
}
ANY, FORM = AnswerFormat(), AnswerFormat(LIGHT)
QUESTION = Message("user", "Is it on?")


def test_a_question_and_the_request_for_a_form_are_one_message() -> None:
    before, (asked,) = form_messages([Message("system", "Be brief."), QUESTION], FORM, None)
    assert before == [Message("system", "Be brief.")]
    assert asked.role == "user"
    assert asked.text.startswith("Is it on?\n\nAnswer as JSON that follows this schema: {")


def test_the_answer_in_words_stands_before_the_request_to_repeat_it() -> None:
    before, (draft, asked) = form_messages([QUESTION], ANY, "It is on.")
    assert before == [QUESTION]
    assert draft == Message("assistant", "It is on.")
    assert asked.text.startswith("Repeat your answer as one JSON object.")


def test_a_result_of_a_tool_without_words_behind_it_is_followed_by_the_request() -> None:
    result = Message("tool", "{}", call_id="c1")
    before, (asked,) = form_messages([QUESTION, result], ANY, "")
    assert before == [QUESTION, result]
    assert (asked.role, asked.text.split()[0]) == ("user", "Answer")


def test_a_long_schema_is_not_shown_to_the_model() -> None:
    form = AnswerFormat({"type": "object", "description": "x" * MAX_SHOWN_SCHEMA_CHARS})
    _, (asked,) = form_messages([QUESTION], form, None)
    assert asked.text.endswith(
        "Answer as JSON. Write nothing else. Keep the language of the texts."
    )


@pytest.mark.parametrize(
    ("text", "form"),
    [('{"on": true}', FORM), (' {"on":false,"room":"attic"}\n', FORM), ('{"x": 1}', ANY)],
)
def test_a_text_in_its_form_passes(text: str, form: AnswerFormat) -> None:
    check_answer(text, form)


@pytest.mark.parametrize(
    ("text", "form", "why"),
    [
        ("It is on.", FORM, "is not JSON"),
        ('{"on": tr', FORM, "ends in the middle of it"),
        ("", ANY, "is not JSON"),
        ("[1]", ANY, "is not a JSON object"),
        ('{"on": 1}', FORM, "does not fit the schema: type at on"),
        ("{}", FORM, "does not fit the schema: required at its top level"),
        ('{"on": true, "room": "my secret"}', FORM, "does not fit the schema: enum at room"),
    ],
)
def test_another_text_is_refused_without_quoting_it(
    text: str, form: AnswerFormat, why: str
) -> None:
    with pytest.raises(InvalidAnswer, match=why) as refused:
        check_answer(text, form)
    assert "secret" not in str(refused.value)


def test_what_is_no_schema_is_refused() -> None:
    check_schema(LIGHT)
    for wrong in ({"type": "lamp"}, {"properties": [1]}, {"required": "on"}):
        with pytest.raises(ValueError, match="not a JSON Schema"):
            check_schema(wrong)


def test_a_schema_of_endless_work_ends_the_check_and_not_the_server() -> None:
    rules: dict[str, Any] = {
        f"r{n}": {"allOf": [{"$ref": f"#/$defs/r{n + 1}"}] * 2} for n in range(60)
    }
    check_answer("{}", AnswerFormat({"$defs": {**rules, "r60": {}}, "$ref": "#/$defs/r0"}))
    check_answer("{}", AnswerFormat({"$ref": "#"}))
    check_answer("{}", AnswerFormat({"$ref": "https://example.com/schema"}))
    check_answer('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"', AnswerFormat({"pattern": "^(a+)+$"}))
