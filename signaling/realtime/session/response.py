"""Converts the parameters of `response.create` to a request for one response."""

from collections.abc import Sequence

from core.conversation.items import Item, ItemReference
from core.errors import RequestError
from pipeline.shared.prompts import NO_PROMPTS, PromptLibrary
from pipeline.shared.settings import ResponseRequest
from signaling.realtime.protocol.audio_format import AudioFormat, name_of
from signaling.realtime.protocol.client_events import InputItem, NewItemReference, ResponseParams
from signaling.realtime.protocol.structs import sent_object
from signaling.realtime.protocol.validation import params_below
from signaling.realtime.session.extensions import effort_of
from signaling.realtime.session.items import new_item
from signaling.realtime.session.prompt import instructions_of, prompt_use
from signaling.realtime.session.schema import VoiceId
from signaling.realtime.session.settings import own_voice
from signaling.realtime.session.tools import own_choice, read_client_tools


def response_request(
    params: ResponseParams | None, prompts: PromptLibrary = NO_PROMPTS
) -> ResponseRequest:
    """Converts the parameters. Raises RequestError for unsupported ones."""
    if params is None:
        return ResponseRequest()
    modalities, audio = sent_object(params.output_modalities), sent_object(params.audio)
    output = sent_object(audio.output) if audio else None
    format_ = output.format if output else None
    voice = output.voice if output else None
    extension = sent_object(params.earshot)
    sent_input = sent_object(params.input)
    tools = read_client_tools(params.tools, "response")
    return ResponseRequest(
        modality=modalities[0] if modalities else None,
        instructions=_instructions(params, prompts),
        voice=own_voice(voice) if isinstance(voice, str | VoiceId) else None,
        client_tools=tools.functions if tools else None,
        mcp_servers=tools.servers if tools else None,
        tool_choice=own_choice(params.tool_choice),
        max_output_tokens=sent_object(params.max_output_tokens),
        temperature=sent_object(extension.temperature) if extension else None,
        parallel_tool_calls=sent_object(params.parallel_tool_calls),
        reasoning_effort=effort_of(params.reasoning),
        audio_format=name_of(format_) if isinstance(format_, AudioFormat) else None,
        metadata=sent_object(params.metadata),
        in_conversation=params.conversation != "none",
        input=None if sent_input is None else _items(sent_input),
    )


def _instructions(params: ResponseParams, prompts: PromptLibrary) -> str | None:
    """Returns the instructions. Written ones take precedence over those of a prompt."""
    prompt, written = sent_object(params.prompt), sent_object(params.instructions)
    if prompt is None:
        return written
    stored = instructions_of(prompt_use(prompt, "response"), prompts, "response")
    return stored if written is None else written


def _items(sent: Sequence[InputItem]) -> tuple[Item | ItemReference, ...]:
    """Converts the response's own context. Raises RequestError, also for audio without a
    transcript."""
    items: list[Item | ItemReference] = []
    for index, item in enumerate(sent):
        if isinstance(item, NewItemReference):
            items.append(ItemReference(item.id))
            continue
        at = f"response.input[{index}]"
        with params_below(at):
            made = new_item(item, "")
        for part in made.recordings:
            raise RequestError(
                f"'{at}.content[{part}].audio' is recognised only in items of the conversation:"
                " create the item and send an item_reference to it, or send its transcript.",
                code="unsupported_parameter",
                param=f"{at}.content[{part}].audio",
            )
        items.append(made.item)
    return tuple(items)
