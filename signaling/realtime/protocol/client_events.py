"""Events that a client may send, as a closed union for `match`."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct

from core.conversation.items import ImageDetail, ItemStatus
from signaling.realtime.protocol.audio_format import AudioFormat
from signaling.realtime.protocol.structs import OptionalField, StrictStruct
from signaling.realtime.session.mcp import McpServerLabel, McpToolName
from signaling.realtime.session.prompt import PromptReference
from signaling.realtime.session.schema import (
    Modalities,
    OutputTokens,
    ReasoningConfiguration,
    SessionObject,
    Temperature,
    VoiceId,
)
from signaling.realtime.session.tools import (
    MAX_TOOLS,
    FunctionName,
    ToolChoiceObject,
    ToolDefinitions,
)

ItemId = Annotated[str, Meta(min_length=1, max_length=64)]
"""Id of an item. Ids are stored with the conversation and repeated in errors, so their length is
limited."""
CallId = Annotated[str, Meta(min_length=1, max_length=128)]
"Id of a function call. Language models choose these ids."


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
"Client's notes on a response, with the limits of OpenAI's service."


MAX_PARTS = 64
"Largest number of parts in a message."


MAX_EVENT_ID_LENGTH = 512
"Limit of OpenAI's service. The id is kept, and repeated in errors."


class ClientEventBase(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all client events. A client may give an id, which an error repeats."""

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


class ContentPartObject(StrictStruct, frozen=True):
    """Part of a message. Its required fields depend on the type and the role."""

    type: Literal["input_text", "input_audio", "input_image", "output_text", "output_audio"]
    text: str | None = None
    transcript: str | None = None
    audio: str | None = None
    image_url: str | None = None
    detail: ImageDetail | None = None


class NewItem(StrictStruct, frozen=True, tag_field="type"):
    """Fields that messages, function calls and their results share."""

    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    status: ItemStatus | None = None
    "Accepted and without effect, as with OpenAI's service."


class NewMessage(NewItem, frozen=True, kw_only=True, tag="message"):
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[ContentPartObject], Meta(max_length=MAX_PARTS)]


class NewFunctionCall(NewItem, frozen=True, kw_only=True, tag="function_call"):
    name: FunctionName
    arguments: str
    call_id: CallId | None = None


class NewFunctionOutput(NewItem, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: CallId
    output: str


class NewApprovalResponse(StrictStruct, frozen=True, tag_field="type", tag="mcp_approval_response"):
    """Client's decision on a call of a tool of one of its MCP servers."""

    approval_request_id: ItemId
    approve: bool
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None


class NewMcpCall(StrictStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """Tool call that was made elsewhere, with its result."""

    server_label: McpServerLabel
    name: McpToolName
    arguments: str
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    approval_request_id: ItemId | None = None
    output: str | None = None
    error: dict[str, Any] | None = None


class NewMcpTool(StrictStruct, frozen=True):
    name: McpToolName
    input_schema: dict[str, Any]
    description: str | None = None
    annotations: dict[str, Any] | None = None


class NewMcpList(StrictStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_list_tools"):
    """Tool list of an MCP server, kept as a record: no server is connected for it."""

    server_label: McpServerLabel
    tools: Annotated[list[NewMcpTool], Meta(max_length=MAX_TOOLS)]
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None


class NewApprovalRequest(
    StrictStruct, frozen=True, kw_only=True, tag_field="type", tag="mcp_approval_request"
):
    """Request for approval that was made elsewhere, kept as a record: it cannot be approved
    here."""

    server_label: McpServerLabel
    name: McpToolName
    arguments: str
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None


class NewItemReference(StrictStruct, frozen=True, tag_field="type", tag="item_reference"):
    """Item of the conversation, as a part of a response's own context."""

    id: ItemId


NewConversationItem: TypeAlias = (
    NewMessage | NewFunctionCall | NewFunctionOutput | NewMcpCall | NewMcpList | NewApprovalRequest
)


class ItemCreate(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.create"):
    item: NewConversationItem | NewApprovalResponse
    previous_item_id: ItemId | None = None


class ItemDelete(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.delete"):
    item_id: ItemId


class ItemRetrieve(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.retrieve"):
    item_id: ItemId


class ItemTruncate(ClientEventBase, frozen=True, kw_only=True, tag="conversation.item.truncate"):
    item_id: ItemId
    content_index: Annotated[int, Meta(ge=0, le=0)]
    audio_end_ms: Annotated[int, Meta(ge=0)]


class ResponseAudioOutput(StrictStruct, frozen=True):
    format: OptionalField[AudioFormat] = UNSET
    voice: OptionalField[str | VoiceId] = UNSET


class ResponseAudio(StrictStruct, frozen=True):
    output: OptionalField[ResponseAudioOutput] = UNSET


class ResponseExtension(StrictStruct, frozen=True):
    """Fields of a response that OpenAI's service does not have; its beta has them."""

    temperature: OptionalField[Temperature] = UNSET


InputItem: TypeAlias = NewConversationItem | NewItemReference
"Item in a response's own context."


class ResponseParams(StrictStruct, frozen=True):
    """Settings of one response that differ from the session's."""

    output_modalities: OptionalField[Modalities] = UNSET
    instructions: OptionalField[str] = UNSET
    audio: OptionalField[ResponseAudio] = UNSET
    conversation: OptionalField[Literal["auto", "none"]] = UNSET
    input: OptionalField[Annotated[list[InputItem], Meta(max_length=400)]] = UNSET
    metadata: OptionalField[Metadata] = UNSET
    tools: OptionalField[ToolDefinitions] = UNSET
    tool_choice: OptionalField[ToolChoiceObject] = UNSET
    prompt: OptionalField[PromptReference] = UNSET
    max_output_tokens: OptionalField[OutputTokens | Literal["inf"]] = UNSET
    parallel_tool_calls: OptionalField[bool] = UNSET
    reasoning: OptionalField[ReasoningConfiguration] = UNSET
    earshot: OptionalField[ResponseExtension] = UNSET


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
