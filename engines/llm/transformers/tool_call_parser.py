"""Finds tool calls in a model's text, in the formats of the usual chat templates. Pure.

Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Llama: the whole answer
is `{"name": ..., "parameters": {...}}`. Mistral: the whole answer is a list of such objects.
"""

import msgspec

from core.conversation.ids import new_id
from engines.base import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class InvalidToolCall(ValueError):
    """Raised for a tool call that is not valid; its text completes the sentence "it wrote ..."."""


class ToolCallParser:
    """Takes text in pieces of any length. Returns the speakable part, and the calls at the end."""

    def __init__(self) -> None:
        self._pending_text = ""
        self._calls: list[ToolCall] = []
        self._is_json: bool | None = None
        "True: the answer may be a call, because it begins with `{` or `[`; None: no text yet."

    def push(self, text: str) -> str:
        """Returns the text that may be spoken now. Raises InvalidToolCall."""
        self._pending_text += text
        if self._is_json is None and (begin := self._pending_text.lstrip()):
            self._is_json = begin[0] in "{["
        if self._is_json is not False:
            return ""
        spoken = ""
        while OPEN in self._pending_text:
            before, _, rest = self._pending_text.partition(OPEN)
            inside, closed, rest = rest.partition(CLOSE)
            if not closed:
                self._pending_text = self._pending_text[len(before) :]
                return spoken + before
            self._calls += _calls(inside)
            spoken, self._pending_text = spoken + before, rest
        safe = len(self._pending_text) - _partial_tag_chars(self._pending_text)
        spoken, self._pending_text = spoken + self._pending_text[:safe], self._pending_text[safe:]
        return spoken

    def end(self) -> tuple[str, list[ToolCall]]:
        """Returns the rest of the text, and the calls. Raises InvalidToolCall."""
        rest, self._pending_text = self._pending_text, ""
        if rest.startswith(OPEN):  # the answer ended without the closing tag
            return "", self._calls + _calls(rest.removeprefix(OPEN))
        if self._is_json:
            try:
                return "", _calls(rest)
            except InvalidToolCall:
                return rest, []  # an answer in JSON that is no call
        return rest, self._calls


def _partial_tag_chars(text: str) -> int:
    """Returns how many of the last characters may be the beginning of the opening tag."""
    return next((n for n in range(len(OPEN) - 1, 0, -1) if text.endswith(OPEN[:n])), 0)


def _calls(text: str) -> list[ToolCall]:
    try:
        found: object = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise InvalidToolCall("a tool call that is not JSON") from None
    return [_call(call) for call in (found if isinstance(found, list) else [found])]


def _call(found: object) -> ToolCall:
    if isinstance(found, dict) and isinstance(name := found.get("name"), str) and name:
        arguments = found.get("arguments", found.get("parameters")) or {}
        if isinstance(arguments, dict):
            return ToolCall(new_id("call"), name, arguments)
    raise InvalidToolCall("a tool call without a name, or with arguments that are not an object")
