"""Events that a client of GPT-Live may send, as a closed union for `match`."""

from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta
from msgspec.json import Decoder

from signaling.live.schema import LiveSession, LiveSessionUpdate
from signaling.realtime.protocol.client_events import CallId, ClientEventBase, ItemId
from signaling.realtime.protocol.decode import EventDecoder
from signaling.realtime.protocol.structs import StrictStruct

MAX_APPEND_CHARS = 4_000
"""Limit of one appended text. OpenAI's service takes 500 tokens, of some four characters each; here
the model's own tokens are unknown to the door, so it counts characters and is more generous."""

AppendedText = Annotated[str, Meta(min_length=1, max_length=MAX_APPEND_CHARS)]
DelegationId = Annotated[str, Meta(min_length=1, max_length=64)]


class LiveSessionStart(ClientEventBase, frozen=True, kw_only=True, tag="session.start"):
    session: LiveSession


class LiveSessionChange(ClientEventBase, frozen=True, kw_only=True, tag="session.update"):
    session: LiveSessionUpdate


class LiveInputAppend(ClientEventBase, frozen=True, kw_only=True, tag="session.input_audio.append"):
    audio: str


class InputMute(ClientEventBase, frozen=True, tag="session.input_audio.mute"):
    pass


class InputUnmute(ClientEventBase, frozen=True, tag="session.input_audio.unmute"):
    pass


class InstructionsAppend(
    ClientEventBase, frozen=True, kw_only=True, tag="session.instructions.append"
):
    """Instructions from now on."""

    content: AppendedText
    delegation_id: DelegationId | None


class ThinkingAppend(ClientEventBase, frozen=True, kw_only=True, tag="session.thinking.append"):
    """Context that the model knows, but is not asked to say."""

    content: AppendedText
    delegation_id: DelegationId | None


class CommentaryAppend(ClientEventBase, frozen=True, kw_only=True, tag="session.commentary.append"):
    """Context that the model says in its own words, such as the result of a delegated task."""

    content: AppendedText
    delegation_id: DelegationId | None


class NewMessagePart(StrictStruct, frozen=True):
    text: str
    type: Literal["input_text", "output_text"] = "input_text"


class BackendMessage(StrictStruct, frozen=True, tag="message", tag_field="type"):
    """Message for the model that works on delegated tasks."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[NewMessagePart], Meta(min_length=1, max_length=64)]
    id: ItemId | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class NewCallOutput(StrictStruct, frozen=True, tag="function_call_output", tag_field="type"):
    """Result of a tool that the client has run."""

    call_id: CallId
    output: str
    id: ItemId | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class ResponseItemCreate(ClientEventBase, frozen=True, kw_only=True, tag="response.item.create"):
    item: BackendMessage | NewCallOutput


class BackendResponseCreate(ClientEventBase, frozen=True, tag="response.create"):
    pass


class SessionClose(ClientEventBase, frozen=True, tag="session.close"):
    pass


AppendEvent: TypeAlias = InstructionsAppend | ThinkingAppend | CommentaryAppend
ClientEvent: TypeAlias = (
    LiveSessionStart
    | LiveSessionChange
    | LiveInputAppend
    | InputMute
    | InputUnmute
    | InstructionsAppend
    | ThinkingAppend
    | CommentaryAppend
    | ResponseItemCreate
    | BackendResponseCreate
    | SessionClose
)

decode = EventDecoder[ClientEvent](
    Decoder(ClientEvent).decode, get_args(ClientEvent), LiveInputAppend
).decode
"Decodes one event of a GPT-Live client, see `EventDecoder.decode`."
