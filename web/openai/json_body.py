"""JSON bodies of OpenAI's API: the content type, and errors in its words."""

from typing import TypeVar

from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import RequestError
from core.http.json_body import FieldProblem, decode_json_body
from core.http.routes import JSON
from web.openai.transcriptions.validation import MAX_SHOWN_CHARS, describe_allowed

S = TypeVar("S", bound=Struct)


async def read_json(request: aioweb.Request) -> bytes:
    """Returns the body. Raises RequestError unsupported_media_type if it is not declared as
    JSON."""
    check_json(request)
    return await request.read()


def check_json(request: aioweb.Request) -> None:
    """Raises RequestError unsupported_media_type if the body is not declared as JSON."""
    if request.content_type != JSON:
        raise RequestError(f"The body must be {JSON}.", code="unsupported_media_type")


def decode_json(body: bytes, struct_type: type[S]) -> S:
    """Decodes the body; unknown fields are ignored.

    Raises RequestError invalid_json, missing_required_parameter, invalid_value.
    """
    return decode_json_body(body, struct_type, field_error)


def field_error(problem: FieldProblem, struct_type: type[Struct]) -> RequestError:
    """Returns the error for a field, with its name and the values that are allowed."""
    param = problem.param
    if problem.missing_field:
        return RequestError(
            f"Missing required parameter: '{param}'.",
            code="missing_required_parameter",
            param=param,
        )
    reason = problem.reason[: 2 * MAX_SHOWN_CHARS]
    if param is None:
        return RequestError(f"Invalid body: {reason}.", code="invalid_value")
    is_inside = "." in param or "[" in param
    # Inside a field, msgspec's own words say what was expected there.
    allowed = "" if is_inside else f" Allowed: {describe_allowed(struct_type, param)}."
    return RequestError(
        f"Invalid value for '{param}': {reason}.{allowed}", code="invalid_value", param=param
    )
