"""What a request says about the session it wants: query, raw SDP, or a form of SDP and session."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
from aiohttp import BodyPartReader
from aiohttp import web as aioweb
from aiohttp.http_exceptions import HttpProcessingError

from core.errors import PayloadTooLarge, RequestError
from core.http.routes import BROKEN_FORM
from pipeline.shared.settings import DEFAULT, SessionSettings, own_model
from signaling.realtime.client_secrets import (
    ClientSecret,
    ClientSecretRequest,
    as_minted,
    check_conversation,
    check_type,
)
from signaling.realtime.protocol.decode import MAX_CONTROL_EVENT_BYTES
from signaling.realtime.protocol.structs import StrictStruct
from signaling.realtime.protocol.validation import validate
from signaling.realtime.session.schema import SessionObject
from signaling.realtime.session.settings import (
    SessionConfiguration,
    apply_session_update,
    conversation_of,
)

SDP = "application/sdp"
FORM = "multipart/form-data"

MAX_ID_LENGTH = 64
"Our ids have 29 characters, a client's own 36; the server keeps them."


SessionSettingsFactory: TypeAlias = Callable[[str | None], SessionSettings]
"Conversation id -> what a connection to it begins with."


class CallForm(StrictStruct, frozen=True):
    """The parts of the form."""

    sdp: str
    session: SessionObject | None = None


class _SessionPart(StrictStruct, frozen=True):
    session: SessionObject


@dataclass(frozen=True, slots=True)
class CallOffer:
    sdp: str
    terms: SessionConfiguration


def terms_of(
    query: Mapping[str, str],
    fresh: SessionSettingsFactory,
    sent: SessionObject | None = None,
    minted: ClientSecret | None = None,
) -> SessionConfiguration:
    """`fresh` with `model`, `intent=transcription`, `conversation_id` of the query, and with the
    session object that was sent. `minted`: what the request's ephemeral key was made for; its type,
    model and conversation stay, whatever the query says. Raises RequestError."""
    if "call_id" in query:
        raise RequestError(
            "An offer begins a call of its own; a WebSocket may follow one by its id.",
            code="unsupported_parameter",
            param="call_id",
        )
    if minted is not None:
        session = minted.session
        check_conversation(query.get("conversation_id"), conversation_of(session))
        fixed = as_minted(terms_of(_named(session), fresh, session))
        fixed = replace(fixed, guest=minted.guest)
        return _within(fixed, apply_session_update(fixed, sent)) if sent else fixed
    conversation_id = query.get("conversation_id")
    if conversation_id is not None and not 0 < len(conversation_id) <= MAX_ID_LENGTH:
        raise RequestError(
            f"'conversation_id' must have 1 to {MAX_ID_LENGTH} characters.",
            code="invalid_value",
            param="conversation_id",
        )
    settings = replace(
        fresh((conversation_of(sent) if sent else None) or conversation_id),
        llm=own_model(query.get("model") or DEFAULT),
        answers=query.get("intent") != "transcription",
    )
    terms = SessionConfiguration(
        settings,
        conversation_id=conversation_id,
        knows_conversations=conversation_id is not None,
    )
    return apply_session_update(terms, sent) if sent else terms


def _named(minted: SessionObject) -> dict[str, str]:
    """A query that says no more than what it was made for."""
    conversation_id = conversation_of(minted)
    return {} if conversation_id is None else {"conversation_id": conversation_id}


def _within(fixed: SessionConfiguration, wished: SessionConfiguration) -> SessionConfiguration:
    check_type(fixed, wished)
    settings = replace(wished.settings, llm=fixed.settings.llm)
    check_conversation(wished.conversation_id, fixed.conversation_id)
    return replace(wished, settings=settings)


async def read_offer(
    request: aioweb.Request, fresh: SessionSettingsFactory, minted: ClientSecret | None = None
) -> CallOffer:
    """Raises RequestError for another body than SDP or the form of `sdp` and `session`."""
    if request.content_type == SDP:
        return CallOffer(await read_sdp(request), terms_of(request.query, fresh, minted=minted))
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
    sent = None
    if "session" in form:
        sent = validate({"session": _json(form["session"], "session")}, _SessionPart).session
    return CallOffer(_sdp(form["sdp"]), terms_of(request.query, fresh, sent, minted))


def read_secret_request(
    body: bytes, reshape: Callable[[Any], Any] = lambda raw: raw
) -> ClientSecretRequest:
    """No body asks for a session as it is by default; `reshape`: from an older shape. Raises
    RequestError."""
    if len(body) > MAX_CONTROL_EVENT_BYTES:
        raise PayloadTooLarge(
            f"The body has {len(body)} bytes; the limit is {MAX_CONTROL_EVENT_BYTES}."
        )
    return validate(reshape(_json(body) if body.strip() else {}), ClientSecretRequest)


async def read_sdp(request: aioweb.Request) -> str:
    """The body as text. Raises RequestError."""
    return _sdp(await request.read())


async def _form(request: aioweb.Request) -> dict[str, bytes]:
    """The parts that are known, as bytes, whether sent as fields or as files.

    The whole form has the application's limit. Raises RequestError invalid_form, TooLarge.
    """
    parts: dict[str, bytes] = {}
    try:
        form = await request.multipart()
        while (part := await form.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise ValueError("a form in the form")  # noqa: TRY004 (of the client, no bug)
            data = bytes(await part.read(decode=True))
            if request.content.total_bytes > request.client_max_size:
                raise PayloadTooLarge(f"The form has more than {request.client_max_size} bytes.")
            if part.name in CallForm.__struct_fields__:
                parts[part.name] = data
    except (*BROKEN_FORM, HttpProcessingError, aioweb.RequestPayloadError):
        raise RequestError("The form cannot be read.", code="invalid_form") from None
    return parts


def _sdp(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RequestError("This is not SDP: it is not UTF-8.", code="invalid_sdp") from None


def _json(data: bytes, param: str | None = None) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        what = param or "body"
        message = f"The {what} is not valid JSON."
        raise RequestError(message, code="invalid_json", param=param) from None
