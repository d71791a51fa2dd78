"""References to stored prompts, in a session or a response: parsing and display."""

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct

from core.errors import RequestError
from pipeline.shared.prompts import PromptLibrary, PromptSelection
from signaling.realtime.protocol.structs import OptionalField, StrictStruct, sent_object
from signaling.realtime.protocol.validation import params_below

MAX_VARIABLES = 100

PromptVariableName = Annotated[str, Meta(min_length=1, max_length=64)]


class TextValue(StrictStruct, frozen=True, tag="input_text", tag_field="type"):
    """Text for a variable of a prompt."""

    text: str


class ImageValue(Struct, frozen=True, tag="input_image", tag_field="type"):
    """Recognised only so that the refusal can name it: the values of a prompt are text."""


class FileValue(Struct, frozen=True, tag="input_file", tag_field="type"):
    """Recognised only for the refusal, as `ImageValue`."""


PromptVariable: TypeAlias = str | TextValue | ImageValue | FileValue


class PromptReference(StrictStruct, frozen=True):
    """Client's reference to a stored prompt, with values for its variables."""

    id: PromptVariableName
    version: OptionalField[PromptVariableName] = UNSET
    variables: OptionalField[
        Annotated[dict[PromptVariableName, PromptVariable], Meta(max_length=MAX_VARIABLES)]
    ] = UNSET


def prompt_use(sent: PromptReference, prefix: str) -> PromptSelection:
    """Converts a reference to a stored prompt. Raises RequestError for values that are no text."""
    variables: dict[str, str] = {}
    for name, value in (sent_object(sent.variables) or {}).items():
        if isinstance(value, ImageValue | FileValue):
            kind = str(value.__struct_config__.tag)
            raise RequestError(
                f"'{prefix}.prompt.variables.{name}' is of type {kind}: a prompt's values are "
                "text here. Allowed: a string, input_text.",
                code="unsupported_parameter",
                param=f"{prefix}.prompt.variables.{name}",
            )
        variables[name] = value.text if isinstance(value, TextValue) else value
    return PromptSelection(sent.id, sent_object(sent.version), variables)


def instructions_of(use: PromptSelection, prompts: PromptLibrary, prefix: str) -> str:
    """Returns the prompt's text with its values. Raises RequestError, see
    `PromptLibrary.instructions`."""
    with params_below(prefix):
        return prompts.instructions(use)


def prompt_json(use: PromptSelection) -> dict[str, object]:
    """Returns a reference to a prompt as clients see it."""
    return {"id": use.id, "version": use.version, "variables": dict(use.variables) or None}
