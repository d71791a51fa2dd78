"""Parses requests for a session: query, raw SDP, or a form with SDP and session object."""

from collections.abc import Awaitable, Callable, Mapping
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
    check_conversation,
    check_type,
    fix_configuration,
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
"Limit of a conversation id, which the server keeps. Ours have 29 characters, a client's UUID 36."


SessionSettingsFactory: TypeAlias = Callable[[str | None], SessionSettings]
"Conversation id -> settings with which a connection to it begins."

ConversationRecall: TypeAlias = Callable[[str | None], Awaitable[None]]
"Takes over the conversation with this id from another gateway, if it was there."


class CallForm(StrictStruct, frozen=True):
    """Parts of the form."""

    sdp: str
    session: SessionObject | None = None


class _SessionPart(StrictStruct, frozen=True):
    """Form part with the session, for the paths in errors."""

    session: SessionObject


@dataclass(frozen=True, slots=True)
class CallOffer:
    """SDP offer with the session's configuration."""

    sdp: str
    configuration: SessionConfiguration


def configuration_of(
    query: Mapping[str, str],
    initial_settings: SessionSettingsFactory,
    sent: SessionObject | None = None,
    client_secret: ClientSecret | None = None,
) -> SessionConfiguration:
    """Builds the configuration of a new session. Raises RequestError.

    `query`: may hold `model`, `intent=transcription` and `conversation_id`. `initial_settings`:
    settings to start from. `sent`: session object of the request. `client_secret`: client secret of
    the request; its type, model and conversation stay, whatever the query says.
    """
    if "call_id" in query:
        raise RequestError(
            "An offer starts a new call; only a WebSocket can follow a call by its id.",
            code="unsupported_parameter",
            param="call_id",
        )
    if client_secret is not None:
        session = client_secret.session
        check_conversation(query.get("conversation_id"), conversation_of(session))
        fixed = fix_configuration(configuration_of(_query_of(session), initial_settings, session))
        fixed = replace(fixed, secret_holder=client_secret.secret_holder)
        return _within_secret(fixed, apply_session_update(fixed, sent)) if sent else fixed
    conversation_id = query.get("conversation_id")
    if conversation_id is not None and not 0 < len(conversation_id) <= MAX_ID_LENGTH:
        raise RequestError(
            f"'conversation_id' must have 1 to {MAX_ID_LENGTH} characters.",
            code="invalid_value",
            param="conversation_id",
        )
    settings = replace(
        initial_settings(requested_conversation(query, sent)),
        llm=own_model(query.get("model") or DEFAULT),
        answers=query.get("intent") != "transcription",
    )
    configuration = SessionConfiguration(
        settings,
        conversation_id=conversation_id,
        shows_extension=conversation_id is not None,
    )
    return apply_session_update(configuration, sent) if sent else configuration


def _query_of(session: SessionObject) -> dict[str, str]:
    """Returns a query that only names the conversation of a client secret's session object."""
    conversation_id = conversation_of(session)
    return {} if conversation_id is None else {"conversation_id": conversation_id}


def _within_secret(
    fixed: SessionConfiguration, requested: SessionConfiguration
) -> SessionConfiguration:
    """Returns the requested configuration within the client secret's limits. Raises
    RequestError."""
    check_type(fixed, requested)
    settings = replace(requested.settings, llm=fixed.settings.llm)
    check_conversation(requested.conversation_id, fixed.conversation_id)
    return replace(requested, settings=settings)


def requested_conversation(
    query: Mapping[str, str],
    sent: SessionObject | None = None,
    client_secret: ClientSecret | None = None,
) -> str | None:
    """Returns the id of the conversation that `configuration_of` will choose; None: a new one."""
    if client_secret is not None:
        return conversation_of(client_secret.session)
    return (conversation_of(sent) if sent else None) or query.get("conversation_id")


async def read_offer(
    request: aioweb.Request,
    initial_settings: SessionSettingsFactory,
    recall: ConversationRecall,
    client_secret: ClientSecret | None = None,
) -> CallOffer:
    """Reads a body of SDP, or a form with `sdp` and `session`. Raises RequestError for any other
    body."""
    if request.content_type == SDP:
        sdp = await read_sdp(request)
        await recall(requested_conversation(request.query, client_secret=client_secret))
        return CallOffer(
            sdp, configuration_of(request.query, initial_settings, client_secret=client_secret)
        )
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
    await recall(requested_conversation(request.query, sent, client_secret))
    return CallOffer(
        _sdp(form["sdp"]), configuration_of(request.query, initial_settings, sent, client_secret)
    )


def read_secret_request(
    body: bytes, reshape: Callable[[Any], Any] = lambda raw: raw
) -> ClientSecretRequest:
    """Parses the request for a client secret. No body means a session with default settings.
    `reshape`: translates an older shape. Raises RequestError or PayloadTooLarge."""
    if len(body) > MAX_CONTROL_EVENT_BYTES:
        raise PayloadTooLarge(
            f"The body has {len(body)} bytes; the limit is {MAX_CONTROL_EVENT_BYTES}."
        )
    return validate(reshape(_json(body) if body.strip() else {}), ClientSecretRequest)


async def read_sdp(request: aioweb.Request) -> str:
    """Returns the body as text. Raises RequestError."""
    return _sdp(await request.read())


async def _form(request: aioweb.Request) -> dict[str, bytes]:
    """Returns the known parts of a form as bytes, sent as fields or as files. The application's
    size limit applies to the whole form. Raises RequestError invalid_form or PayloadTooLarge."""
    parts: dict[str, bytes] = {}
    try:
        form = await request.multipart()
        while (part := await form.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise ValueError("a nested form")  # noqa: TRY004 (of the client, no bug)
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


def _json(data: bytes, param: str | None = None) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        place = param or "body"
        message = f"The {place} is not valid JSON."
        raise RequestError(message, code="invalid_json", param=param) from None
