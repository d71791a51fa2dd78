"""What a client may send. A closed union, read with `match`."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct

from core.items import ImageDetail, ItemStatus
from signaling.realtime.protocol.audio_format import AudioFormat
from signaling.realtime.protocol.wire import Sent, WireStruct
from signaling.realtime.session.mcp import Label, ToolName
from signaling.realtime.session.prompt import PromptReference
from signaling.realtime.session.schema import (
    Modalities,
    OutputTokens,
    Reasoning,
    SessionObject,
    Temperature,
    VoiceId,
)
from signaling.realtime.session.tools import MAX_TOOLS, Choice, FunctionName, Tools

ItemId = Annotated[str, Meta(min_length=1, max_length=64)]
"Ids are kept with the conversation and repeated in errors: a bound on what a client sends."
CallId = Annotated[str, Meta(min_length=1, max_length=128)]
"""Models choose them."""


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
"The client's notes on a response, bounded as the hosted service bounds them."


MAX_PARTS = 64
"Of one message."


MAX_EVENT_ID_LENGTH = 512
"As the hosted service: it is kept, and repeated in errors."


class ClientEventBase(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Every client event may carry an id, which an error repeats."""

    event_id: Annotated[str, Meta(max_length=MAX_EVENT_ID_LENGTH)] | None = None


class SessionUpdate(ClientEventBase, frozen=True, kw_only=True, tag="session.update"):
    session: SessionObject


class InputAppend(ClientEventBase, frozen=True, kw_only=True, tag="input_audio_buffer.append"):
    audio: str


class InputCommit(ClientEventBase, frozen=True, tag="input_audio_buffer.commit"):
    pass


class InputClear(ClientEventBase, frozen=True, tag="input_audio_buffer.clear"):
    pass


class OutputClear(ClientEventBase, frozen=True, tag="output_audio_buffer.clear"):
    pass


class Content(WireStruct, frozen=True):
    """A part of a message; which fields it needs depends on the type and the role."""

    type: Literal["input_text", "input_audio", "input_image", "output_text", "output_audio"]
    text: str | None = None
    transcript: str | None = None
    audio: str | None = None
    image_url: str | None = None
    detail: ImageDetail | None = None


class NewItem(WireStruct, frozen=True, tag_field="type"):
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    status: ItemStatus | None = None
    "Has no effect, as with the hosted service."


class NewMessage(NewItem, frozen=True, kw_only=True, tag="message"):
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[Content], Meta(max_length=MAX_PARTS)]


class NewFunctionCall(NewItem, frozen=True, kw_only=True, tag="function_call"):
    name: FunctionName
    arguments: str
    call_id: CallId | None = None


class NewFunctionOutput(NewItem, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: CallId
    output: str


class NewApprovalResponse(WireStruct, frozen=True, tag_field="type", tag="mcp_approval_response"):
    """The client allows a call of one of its MCP servers, or does not."""

    approval_request_id: ItemId
    approve: bool
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None


class NewMcpCall(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """A call that was made elsewhere, and what came of it."""

    server_label: Label
    name: ToolName
    arguments: str
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    approval_request_id: ItemId | None = None
    output: str | None = None
    error: dict[str, Any] | None = None


class NewListedTool(WireStruct, frozen=True):
    name: ToolName
    input_schema: dict[str, Any]
    description: str | None = None
    annotations: dict[str, Any] | None = None


class NewMcpList(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_list_tools"):
    """What a server had to offer once: kept as it was, nothing is connected for it."""

    server_label: Label
    tools: Annotated[list[NewListedTool], Meta(max_length=MAX_TOOLS)]
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None


class NewApprovalRequest(
    WireStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_approval_request"
):
    """A call that waited for consent elsewhere: kept as it was, it cannot be allowed here."""

    server_label: Label
    name: ToolName
    arguments: str
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None


class NewReference(WireStruct, frozen=True, tag_field="type", tag="item_reference"):
    """An item that the conversation has, as part of a response's own context."""

    id: ItemId


NewInConversation: TypeAlias = (
    NewMessage | NewFunctionCall | NewFunctionOutput | NewMcpCall | NewMcpList | NewApprovalRequest
)


class ItemCreate(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.create"):
    item: NewInConversation | NewApprovalResponse
    previous_item_id: ItemId | None = None


class ItemDelete(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.delete"):
    item_id: ItemId


class ItemRetrieve(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.retrieve"):
    item_id: ItemId


class ItemTruncate(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.truncate"):
    item_id: ItemId
    content_index: Annotated[int, Meta(ge=0, le=0)]
    audio_end_ms: Annotated[int, Meta(ge=0)]


class ResponseAudioOutput(WireStruct, frozen=True):
    format: Sent[AudioFormat] = UNSET
    voice: Sent[str | VoiceId] = UNSET


class ResponseAudio(WireStruct, frozen=True):
    output: Sent[ResponseAudioOutput] = UNSET


class ResponseExtension(WireStruct, frozen=True):
    """What the hosted service has no field for; its beta has."""

    temperature: Sent[Temperature] = UNSET


InputItem: TypeAlias = NewInConversation | NewReference


class ResponseParams(WireStruct, frozen=True):
    """What differs for one answer."""

    output_modalities: Sent[Modalities] = UNSET
    instructions: Sent[str] = UNSET
    audio: Sent[ResponseAudio] = UNSET
    conversation: Sent[Literal["auto", "none"]] = UNSET
    input: Sent[Annotated[list[InputItem], Meta(max_length=400)]] = UNSET
    metadata: Sent[Metadata] = UNSET
    tools: Sent[Tools] = UNSET
    tool_choice: Sent[Choice] = UNSET
    prompt: Sent[PromptReference] = UNSET
    max_output_tokens: Sent[OutputTokens | Literal["inf"]] = UNSET
    parallel_tool_calls: Sent[bool] = UNSET
    reasoning: Sent[Reasoning] = UNSET
    earshot: Sent[ResponseExtension] = UNSET


class ResponseCreate(ClientEventBase, frozen=True, tag="response.create"):
    response: ResponseParams | None = None


class ResponseCancel(ClientEventBase, frozen=True, tag="response.cancel"):
    response_id: ItemId | None = None


ClientEvent = (
    SessionUpdate
    | InputAppend
    | InputCommit
    | InputClear
    | OutputClear
    | ItemCreate
    | ItemDelete
    | ItemRetrieve
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
)
