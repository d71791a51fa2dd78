"""Encodes the form of an answer for OpenAI-compatible servers."""

from collections.abc import Mapping

from engines.base import AnswerFormat


def response_format(form: AnswerFormat | None) -> Mapping[str, object] | None:
    """Returns the field `response_format` of a chat request; None: it is left out.

    llama-server, vLLM, Ollama and OpenAI read this form. See OpenAI's guide to structured outputs:
    https://platform.openai.com/docs/guides/structured-outputs
    """
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    schema = {"name": form.name, "schema": form.schema, "strict": form.is_strict}
    given = {name: value for name, value in schema.items() if value is not None}
    return {"type": "json_schema", "json_schema": given}
