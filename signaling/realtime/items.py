"""Items that a client adds to the conversation."""

from core.errors import RequestError
from core.ids import new_id
from core.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    Part,
    TextPart,
)
from signaling.realtime.events import Content, NewFunctionCall, NewFunctionOutput, NewMessage

_ALLOWED = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio"),
    "assistant": ("output_text", "output_audio"),
}


def new_item(item: NewMessage | NewFunctionCall | NewFunctionOutput, prefix: str = "item") -> Item:
    """With an id, if the client gave none. Raises RequestError for content we cannot take, its
    `param` below `prefix`."""
    item_id = item.id or new_id("item")
    match item:
        case NewMessage(role=role, content=content):
            parts = tuple(
                _part(part, role, f"{prefix}.content[{index}]".lstrip("."))
                for index, part in enumerate(content)
            )
            return MessageItem(item_id, role, parts)
        case NewFunctionCall(name=name, arguments=arguments):
            return FunctionCallItem(item_id, item.call_id or new_id("call"), name, arguments)
        case NewFunctionOutput(call_id=call_id, output=output):
            return FunctionOutputItem(item_id, call_id, output)


def _part(content: Content, role: str, param: str) -> Part:
    if content.type not in _ALLOWED[role]:
        raise RequestError(
            f"Invalid value for '{param}.type' in a message of the {role}. "
            f"Allowed: {', '.join(_ALLOWED[role])}.",
            code="invalid_value",
            param=f"{param}.type",
        )
    is_text = content.type in ("input_text", "output_text")
    text, field = (content.text, "text") if is_text else (content.transcript, "transcript")
    if text is None:
        raise RequestError(
            f"Missing required parameter: '{param}.{field}'. Audio itself goes into the input "
            "audio buffer.",
            code="missing_required_parameter",
            param=f"{param}.{field}",
        )
    return TextPart(text) if is_text else AudioPart(text)
