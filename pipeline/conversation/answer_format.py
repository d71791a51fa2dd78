"""Answers in a form: what the model is told about it, and the check of what it wrote."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing.exceptions import Unresolvable

from engines.base import AnswerFormat, Message
from pipeline.tools.calls.arguments import NO_DOCUMENTS, UNCHECKED

MAX_SHOWN_SCHEMA_CHARS = 4000
"""Longest schema that the model is shown: some 1000 tokens, half of the smallest context window. A
longer one is only held by the engine's grammar."""

MAX_CHECK_STEPS = 5_000
"""Most keywords of a schema that are applied to one answer, because the event loop waits for the
check. A schema of a few lines can describe endless work; ordinary ones take some hundred steps."""


class InvalidAnswer(ValueError):
    """The text does not have the form. The message completes "the answer ..."."""


class _TooManySteps(Exception):
    """The check needs more than MAX_CHECK_STEPS steps."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises ValueError if this is no valid JSON Schema (draft 2020-12)."""
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "its top level"
        raise ValueError(f"not a JSON Schema: the keyword at {place} has a wrong value") from None
    except RecursionError:
        raise ValueError("a JSON Schema with too many levels") from None


def form_messages(
    messages: Sequence[Message], form: AnswerFormat, draft: str | None
) -> tuple[list[Message], list[Message]]:
    """Returns the messages of the conversation, and those behind them that ask for the form.

    draft: answer in free text, which the model shall repeat in the form. None: there is none, and
    the request stands at the end of the user's last message, because many chat templates refuse two
    messages of the user in a row.
    """
    if draft is None and messages and messages[-1].role == "user":
        last = messages[-1]
        asked = replace(last, text=f"{last.text}\n\n{_request('Answer', form)}")
        return list(messages[:-1]), [asked]
    request = Message("user", _request("Repeat your answer" if draft else "Answer", form))
    return list(messages), [*([Message("assistant", draft)] if draft else ()), request]


def _request(verb: str, form: AnswerFormat) -> str:
    if form.schema is None:
        return f"{verb} as one JSON object. Write nothing else. Keep the language of the texts."
    schema = msgspec.json.encode(form.schema).decode()
    shown = f" that follows this schema: {schema}" if len(schema) <= MAX_SHOWN_SCHEMA_CHARS else ""
    return f"{verb} as JSON{shown}. Write nothing else. Keep the language of the texts."


def check_answer(text: str, form: AnswerFormat) -> None:
    """Raises InvalidAnswer for a text that does not have the form.

    Patterns are not checked, because the client wrote them and Python's `re` can take exponential
    time. Nor is a schema checked to its end that takes more than MAX_CHECK_STEPS steps.
    """
    try:
        answer: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise InvalidAnswer("is not JSON, or ends in the middle of it") from None
    if form.schema is None:
        if not isinstance(answer, dict):
            raise InvalidAnswer("is not a JSON object")
        return
    try:
        error = next(iter(_errors(answer, form.schema)), None)
    except (_TooManySteps, Unresolvable, RecursionError):
        return
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "its top level"
        raise InvalidAnswer(f"does not fit the schema: {error.validator} at {place}")


def _errors(answer: object, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    steps = 0

    def limited(keyword: Any) -> Any:
        def run(validator: Any, rule: Any, instance: Any, within: Any) -> Iterator[Any]:
            nonlocal steps
            steps += 1
            if steps > MAX_CHECK_STEPS:
                raise _TooManySteps
            yield from keyword(validator, rule, instance, within) or ()

        return run

    checked = {**Draft202012Validator.VALIDATORS, **UNCHECKED}
    keywords = {name: limited(run) for name, run in checked.items()}
    validator: Any = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    yield from validator(dict(schema), registry=NO_DOCUMENTS).iter_errors(answer)
