"""`/v1/conversations`: conversations that persons keep on the server. The page uses it."""

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import RequestError
from core.http.json_body import decode_json_body_or_empty
from core.http.routes import JSON, Route
from devices.registry.kept_conversations import KeptConversations, KeptToolCall, KeptTurn
from pipeline.tools.calls.arguments import parse_arguments
from pipeline.tools.calls.results import MAX_RESULT_CHARS
from signaling.realtime.session.tools import FunctionName

MAX_ID_CHARS = 64
"Longest id that a session may name for its conversation."

MAX_TEXT_CHARS = 16_000
"Largest number of characters in one text: twenty minutes of speech."

MAX_ADDED_TURNS = 20
"""Largest number of turns in one request, so that their texts fit into `server.max_body_bytes` in
most languages."""

MAX_TOOL_CALLS = 16
"""Largest number of tool calls in one turn: several commands in one sentence, and a model that
tries again."""

_TAG = "conversations"

Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]


ToolText = Annotated[str, Meta(max_length=MAX_RESULT_CHARS)]
"Arguments or result of a tool: no longer than what a language model reads of a result."


class KeptToolCallBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call of one of the server's tools, as `earshot.tool` shows it."""

    name: FunctionName
    arguments: ToolText
    "A JSON object."
    output: ToolText | None = None
    "None: the call gave no result."

    def __post_init__(self) -> None:
        """Raises ValueError for arguments that no session would take back."""
        try:
            parse_arguments(self.arguments)
        except ValueError as exc:
            raise ValueError(f"arguments are a JSON object as a string; these are {exc}") from None

    def __repr__(self) -> str:
        return f"KeptToolCallBody(name={self.name!r})"


class KeptTurnBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn: the words of the user and of the assistant, and the tool calls between them."""

    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
    "Id of the user's message, or of the response if there was none."
    said: Text = ""
    reply: Text = ""
    tool_calls: Annotated[tuple[KeptToolCallBody, ...], Meta(max_length=MAX_TOOL_CALLS)] = ()
    "In the order in which they were made."

    def __repr__(self) -> str:
        return f"KeptTurnBody(id={self.id!r})"


class NewTurns(Struct, frozen=True, forbid_unknown_fields=True):
    """Turns to add. One with a known id takes the place of the former one."""

    turns: Annotated[tuple[KeptTurnBody, ...], Meta(min_length=1, max_length=MAX_ADDED_TURNS)]


class KeptConversationBody(Struct, frozen=True):
    """A kept conversation, the oldest turn first."""

    id: str
    turns: tuple[KeptTurnBody, ...]


class KeptConversationEntry(Struct, frozen=True):
    """Entry of the list."""

    id: str
    title: str
    "Its first words; empty if there are none yet."
    changed: datetime
    "Time of its last change, ISO 8601 in UTC."


class KeptConversationList(Struct, frozen=True):
    """The conversations of the key that asks, the latest first."""

    days: int
    "Days for which one is kept after its last change. 0: the server keeps none."
    conversations: tuple[KeptConversationEntry, ...]


class KeptConversationsDoor:
    """HTTP handlers for the kept conversations."""

    def __init__(self, kept: KeptConversations, forget: Callable[[str], None]) -> None:
        """forget: removes the conversation with this id from memory, at once or when its last
        connection ends."""
        self._kept, self._forget = kept, forget

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        entries = [
            KeptConversationEntry(conversation.id, conversation.title, conversation.changed)
            for conversation in await self._kept.list_all()
        ]
        return _json(KeptConversationList(self._kept.days, tuple(entries)))

    async def read(self, request: aioweb.Request) -> aioweb.Response:
        conversation_id = request.match_info["id"]
        turns = await self._kept.read(conversation_id)
        return _json(KeptConversationBody(conversation_id, tuple(map(_turn_body, turns))))

    async def begin(self, request: aioweb.Request) -> aioweb.Response:
        conversation_id = request.match_info["id"]
        if len(conversation_id) > MAX_ID_CHARS:
            raise RequestError(
                f"the id of a conversation has 1 to {MAX_ID_CHARS} characters",
                code="invalid_value",
                param="id",
            )
        await self._kept.begin(conversation_id)
        return _empty()

    async def add(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), NewTurns)
        await self._kept.add(request.match_info["id"], list(map(_kept_turn, body.turns)))
        return _empty()

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        # The answer is the same for an unknown id: nobody learns which conversations there are.
        conversation_id = request.match_info["id"]
        self._forget(conversation_id)
        await self._kept.delete(conversation_id)
        return _empty()

    async def delete_all(self, _: aioweb.Request) -> aioweb.Response:
        for conversation_id in await self._kept.delete_all():
            self._forget(conversation_id)
        return _empty()


def kept_conversation_routes(door: KeptConversationsDoor) -> tuple[Route, ...]:
    refusals = ("conversations_not_kept", "kept_conversations_full", "storage_failed")
    return (
        Route(
            "GET",
            "/v1/conversations",
            door.list_all,
            "List the conversations that the key keeps on the server, and how long they stay.",
            _TAG,
            responses={200: KeptConversationList},
            error_codes=("storage_failed",),
            scope="talk",
        ),
        Route(
            "GET",
            "/v1/conversations/{id}",
            door.read,
            "Show a kept conversation.",
            _TAG,
            responses={200: KeptConversationBody},
            error_codes=("conversation_not_found", "storage_failed"),
            scope="talk",
        ),
        Route(
            "PUT",
            "/v1/conversations/{id}",
            door.begin,
            "Begin to keep a conversation. Nothing changes for one that is already kept.",
            _TAG,
            responses={204: None},
            error_codes=("invalid_value", *refusals),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/conversations/{id}/turns",
            door.add,
            "Add turns to a kept conversation. A known id replaces its turn.",
            _TAG,
            request=NewTurns,
            responses={204: None},
            error_codes=("conversation_not_found", "invalid_json", "invalid_value", *refusals),
            scope="talk",
        ),
        Route(
            "DELETE",
            "/v1/conversations/{id}",
            door.delete,
            "Delete a conversation with its history and settings, in memory and where it is kept:"
            " at once, or when its last connection ends.",
            _TAG,
            responses={204: None},
            error_codes=("storage_failed",),
            scope="talk",
        ),
        Route(
            "DELETE",
            "/v1/conversations",
            door.delete_all,
            "Delete all conversations that the key keeps.",
            _TAG,
            responses={204: None},
            error_codes=("storage_failed",),
            scope="talk",
        ),
    )


def _kept_turn(body: KeptTurnBody) -> KeptTurn:
    calls = (KeptToolCall(call.name, call.arguments, call.output) for call in body.tool_calls)
    return KeptTurn(body.id, body.said, body.reply, tuple(calls))


def _turn_body(turn: KeptTurn) -> KeptTurnBody:
    calls = (KeptToolCallBody(call.name, call.arguments, call.output) for call in turn.tool_calls)
    return KeptTurnBody(turn.id, turn.said, turn.reply, tuple(calls))


def _json(answer: object) -> aioweb.Response:
    headers = {"Cache-Control": "no-store"}
    return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON, headers=headers)


def _empty() -> aioweb.Response:
    return aioweb.Response(status=HTTPStatus.NO_CONTENT)
