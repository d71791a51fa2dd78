"""Decodes a JSON body into a typed struct. Errors name the field and what is allowed in it."""

import re
from typing import TypeVar

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import RequestError
from core.http.routes import JSON
from web.openai.transcriptions.validation import MAX_SHOWN_CHARS, describe_allowed

S = TypeVar("S", bound=Struct)

_ERROR_LOCATION = re.compile(r"^(?P<why>.*?)(?: - at `\$\.?(?P<param>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


async def read_json(request: aioweb.Request) -> bytes:
    """Returns the body. Raises RequestError unsupported_media_type if it is not declared as
    JSON."""
    if request.content_type != JSON:
        raise RequestError(f"The body must be {JSON}.", code="unsupported_media_type")
    return await request.read()


def decode_json(body: bytes, struct_type: type[S]) -> S:
    """Decodes the body; unknown fields are ignored.

    Raises RequestError invalid_json, missing_required_parameter, invalid_value.
    """
    try:
        return msgspec.json.decode(body, type=struct_type)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), struct_type) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)[: 2 * MAX_SHOWN_CHARS]
        raise RequestError(f"The body is not JSON: {reason}.", code="invalid_json") from None


def invalid_field(message: str, struct_type: type[Struct]) -> RequestError:
    """Returns the error for msgspec's message, with the field and the values that are allowed."""
    match = _ERROR_LOCATION.match(message)
    param = (match["param"] if match else None) or None
    if missing := _MISSING.search(message):
        param = ".".join(filter(None, (param, missing[1])))
        return RequestError(
            f"Missing required parameter: '{param}'.",
            code="missing_required_parameter",
            param=param,
        )
    reason = (match["why"] if match else message)[: 2 * MAX_SHOWN_CHARS]
    if param is None:
        return RequestError(f"Invalid body: {reason}.", code="invalid_value")
    is_inside = "." in param or "[" in param
    # Inside a field, msgspec's own words say what was expected there.
    allowed = "" if is_inside else f" Allowed: {describe_allowed(struct_type, param)}."
    return RequestError(
        f"Invalid value for '{param}': {reason}.{allowed}", code="invalid_value", param=param
    )
