"""What a request says about the session it wants: query, raw SDP, or a form of SDP and session."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from aiohttp import web as aioweb

from core.errors import RequestError
from pipeline.settings import DEFAULT, SessionSettings
from signaling.realtime.fields import checked
from signaling.realtime.session import Terms, merged, own_model
from signaling.realtime.session_object import SessionObject, WireStruct

SDP = "application/sdp"
FORM = "multipart/form-data"

MAX_ID_LENGTH = 64
"Our ids have 29 characters, a client's own 36; the server keeps them."


class CallForm(WireStruct, frozen=True):
    """The parts of the form."""

    sdp: str
    session: SessionObject | None = None


class _SessionPart(WireStruct, frozen=True):
    session: SessionObject


@dataclass(frozen=True, slots=True)
class Offer:
    sdp: str
    terms: Terms


def terms_of(query: Mapping[str, str], fresh: SessionSettings) -> Terms:
    """`fresh` with `model`, `intent=transcription`, `conversation_id`. Raises RequestError."""
    if "call_id" in query:
        raise RequestError(
            "A second connection to a call is not supported: its events run on its data channel.",
            code="unsupported_parameter",
            param="call_id",
        )
    conversation_id = query.get("conversation_id")
    if conversation_id is not None and not 0 < len(conversation_id) <= MAX_ID_LENGTH:
        raise RequestError(
            f"'conversation_id' must have 1 to {MAX_ID_LENGTH} characters.",
            code="invalid_value",
            param="conversation_id",
        )
    settings = replace(
        fresh,
        llm=own_model(query.get("model") or DEFAULT),
        answers=query.get("intent") != "transcription",
    )
    return Terms(
        settings,
        conversation_id=conversation_id,
        knows_conversations=conversation_id is not None,
    )


async def read_offer(request: aioweb.Request, fresh: SessionSettings) -> Offer:
    """Raises RequestError for another body than SDP or the form of `sdp` and `session`."""
    terms = terms_of(request.query, fresh)
    if request.content_type == SDP:
        return Offer(await read_sdp(request), terms)
    if request.content_type != FORM:
        raise RequestError(
            f"The body must be {SDP}, or {FORM} with the parts sdp and session.",
            code="unsupported_media_type",
        )
    form = await _form(request)
    if "sdp" not in form:
        raise RequestError(
            "Missing required parameter: 'sdp'.", code="missing_required_parameter", param="sdp"
        )
    if "session" in form:
        sent = checked({"session": _json(form["session"])}, _SessionPart).session
        terms = merged(terms, sent)
    return Offer(_sdp(form["sdp"]), terms)


async def read_sdp(request: aioweb.Request) -> str:
    """The body as text. Raises RequestError."""
    return _sdp(await request.read())


async def _form(request: aioweb.Request) -> dict[str, bytes]:
    """The parts as bytes, whether sent as fields or as files; the app bounds their size."""
    try:
        form = await request.post()
    except ValueError:
        raise RequestError("The form cannot be read.", code="invalid_form") from None
    parts: dict[str, bytes] = {}
    for name, value in form.items():
        if isinstance(value, str):
            parts[name] = value.encode()
        elif isinstance(value, aioweb.FileField):
            parts[name] = value.file.read()
        else:
            parts[name] = bytes(value)
    return parts


def _sdp(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RequestError("This is not SDP: it is not UTF-8.", code="invalid_sdp") from None


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RequestError(
            "The session is not valid JSON.", code="invalid_json", param="session"
        ) from None
