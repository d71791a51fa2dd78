"""Answers of `conversation/process`, the same over REST and WebSocket. Pure.

<https://developers.home-assistant.io/docs/intent_conversation_api>. The HTTP status is 200 for
errors too: `response_type` decides.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import RemoteProtocolError

MAX_SPEECH_CHARS = 2000
"Limit of a spoken answer: two minutes of speech."

MAX_NAMED_TARGETS = 100
"Limit of the entities that an answer names: all lights of a large house."

NOT_UNDERSTOOD = "no_intent_match"


@dataclass(frozen=True, slots=True)
class IntentResponseTarget:
    """An entity or area that a command changed, or that a question was about."""

    kind: str
    "entity, area, domain, device, device_class, floor or custom."
    name: str
    id: str


@dataclass(frozen=True, slots=True)
class ConversationResult:
    """Home Assistant's answer to one sentence."""

    kind: str
    "action_done, query_answer or error."
    code: str
    """Code of an error: no_intent_match, no_valid_targets, failed_to_handle, unknown, or a code of
    a later version. Empty without an error."""
    speech: str
    "Answer in words, in the language of the question; may be empty."
    conversation_id: str
    "Id to send along with the next sentence; empty: there is none."
    continues: bool
    "True when Home Assistant asked back: the next sentence is for it."
    succeeded: tuple[IntentResponseTarget, ...]
    failed: tuple[IntentResponseTarget, ...]

    @property
    def is_error(self) -> bool:
        return self.kind == "error"


def parse_result(result: Any) -> ConversationResult:
    """Reads an answer. Raises RemoteProtocolError when it is malformed."""
    response = result.get("response") if isinstance(result, dict) else None
    if not isinstance(response, dict) or not isinstance(response.get("response_type"), str):
        raise RemoteProtocolError("Home Assistant: an answer without response_type")
    data = _table(response.get("data"))
    kind = response["response_type"]
    return ConversationResult(
        kind=kind,
        code=_text(data.get("code")) or "unknown" if kind == "error" else "",
        speech=_speech(_table(response.get("speech"))),
        conversation_id=_text(result.get("conversation_id")),
        continues=result.get("continue_conversation") is True,
        succeeded=_targets(data.get("success")),
        failed=_targets(data.get("failed")),
    )


def _speech(speech: Mapping[str, object]) -> str:
    plain = _text(_table(speech.get("plain")).get("speech"))
    marked = re.sub(r"<[^>]*>", " ", _text(_table(speech.get("ssml")).get("speech")))
    return " ".join((plain or marked).split())[:MAX_SPEECH_CHARS]


def _targets(value: object) -> tuple[IntentResponseTarget, ...]:
    entries = (
        [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    )
    return tuple(
        IntentResponseTarget(
            _text(entry.get("type")), _text(entry.get("name")), _text(entry.get("id"))
        )
        for entry in entries[:MAX_NAMED_TARGETS]
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:MAX_SPEECH_CHARS] if isinstance(value, str) else ""


# Mapping of Earshot's conversations to Home Assistant's. Pure: `now_s` is given.

EXPIRES_S = 300.0
"Home Assistant forgets a conversation five minutes after its last sentence."

AWAITS_S = 60.0
"Time in which the next sentence counts as the answer to a question of Home Assistant, in seconds."

MAX_KEPT = 1000
"Limit of the conversations that are remembered."


@dataclass(slots=True)
class _ConversationId:
    id: str
    last_used_s: float
    is_asking: bool


class ConversationIds:
    """Home Assistant's conversation ids, by Earshot's conversation id. The longest unused are
    dropped first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, _ConversationId] = OrderedDict()

    def id(self, conversation_id: str, now_s: float) -> str | None:
        """Returns the id to send along; None: send no id, to begin a new conversation."""
        found = self._ids.get(conversation_id)
        if found is None or now_s - found.last_used_s > EXPIRES_S:
            self._ids.pop(conversation_id, None)
            return None
        return found.id

    def is_asking(self, conversation_id: str, now_s: float) -> bool:
        """Returns True if the next sentence is the answer to a question of Home Assistant."""
        found = self._ids.get(conversation_id)
        return found is not None and found.is_asking and now_s - found.last_used_s <= AWAITS_S

    def record_answer(
        self, conversation_id: str, home_assistant_id: str, now_s: float, *, is_asking: bool
    ) -> None:
        """Records an answer and its conversation id.

        home_assistant_id: Home Assistant's id of the conversation; empty when the answer had none.
        """
        self._ids.pop(conversation_id, None)
        if not conversation_id or not home_assistant_id:
            return
        while len(self._ids) >= MAX_KEPT:
            self._ids.popitem(last=False)
        self._ids[conversation_id] = _ConversationId(home_assistant_id, now_s, is_asking)
