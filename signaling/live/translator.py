"""Translates session events to GPT-Live's server events. No I/O and no clock: times are given."""

from collections.abc import Mapping
from typing import Any

from core.conversation.events import (
    ErrorEvent,
    HypothesisChanged,
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.conversation.items import FunctionCallItem
from signaling.live.configuration import LiveConfiguration
from signaling.live.delegations import Delegations
from signaling.live.server_events import (
    BackendStatus,
    DelegationCreated,
    DelegationObject,
    InputTranscriptDelta,
    OutputTranscriptDelta,
    ResponseEvent,
    ServerEvent,
    call_done,
    error_of,
    response_created,
    response_ended,
)

CHAR_MS = 65
"""Length of a spoken character, in ms. The end of a clause is estimated with it: the clause is told
when its sound begins."""

ASKED = "live"
"Key of the notes on a response that the client asked for by `response.create`."

_STATUS: Mapping[ResponseStatus, BackendStatus] = {"completed": "completed", "failed": "failed"}
"Status of a response -> that of the Responses API."


class LiveTranslator:
    """Translator of one connection. It remembers only what later events need from earlier ones."""

    def __init__(self, configuration: LiveConfiguration) -> None:
        self.configuration = configuration
        self.delegations = Delegations(configuration.target)
        self._heard = _HeardWords()
        self._has_spoken = False
        self._tracked: dict[str, str | None] = {}
        "Response that is told in `response.event` -> its delegation."
        self._last_delegation: str | None = None

    def translated(self, session_event: SessionEvent, now_ms: int) -> list[ServerEvent]:
        """Returns the server events for one session event. `now_ms`: time since the start."""
        match session_event:
            case SpeechStarted(item_id=item_id):
                self._heard.begin(item_id, now_ms)
            case SpeechDiscarded(item_id=item_id):
                self._heard.end(item_id)
            case HypothesisChanged(item_id=item_id, stable=stable):
                return self._heard.more(item_id, stable, now_ms)
            case TranscriptionCompleted(item_id=item_id, transcript=transcript):
                told = self._heard.more(item_id, transcript, now_ms) if transcript else []
                self._heard.end(item_id)
                return told
            case TranscriptionFailed(item_id=item_id, code=code, message=message):
                self._heard.end(item_id)
                return [error_of(code, message, is_clients=False)]
            case ResponseCreated(response_id=response_id, parameters=parameters):
                if ASKED in (parameters.metadata or ()):
                    return self._track(response_id, self._last_delegation)
            case OutputItemDone(response_id=response_id, item=FunctionCallItem() as call):
                return self._delegated(response_id, call, session_event.output_index, now_ms)
            case ResponseDone():
                return self._ended(session_event)
            case ErrorEvent(code=code, message=message, is_clients=is_clients):
                return [error_of(code, message, is_clients=is_clients)]
            case _:
                pass  # GPT-Live has no event for it: the server owns the turns
        return []

    def spoken(self, clause: str, now_ms: int) -> OutputTranscriptDelta:
        """Returns the event for a clause whose sound begins now."""
        words = clause.strip()
        delta = f" {words}" if self._has_spoken else words
        self._has_spoken = True
        return OutputTranscriptDelta(
            delta=delta, start_ms=now_ms, end_ms=now_ms + CHAR_MS * len(words)
        )

    def _track(self, response_id: str, delegation_id: str | None) -> list[ServerEvent]:
        self._tracked[response_id] = delegation_id
        return [self._envelope(delegation_id, response_created(response_id, self._model))]

    def _delegated(
        self, response_id: str, call: FunctionCallItem, output_index: int, now_ms: int
    ) -> list[ServerEvent]:
        """Returns the events for a call of one of the client's tools."""
        target = self.configuration.target
        if target == "client":
            delegation_id = self.delegations.begin()
            delegation = DelegationObject(id=delegation_id, target=target)
            return [DelegationCreated(delegation=delegation, offset_ms=now_ms)]
        told: list[ServerEvent] = []
        if self._tracked.get(response_id) is None:
            delegation_id = self._last_delegation = self.delegations.begin()
            delegation = DelegationObject(id=delegation_id, target=target, response_id=response_id)
            told.append(DelegationCreated(delegation=delegation, offset_ms=now_ms))
            if response_id not in self._tracked:
                told += self._track(response_id, delegation_id)
            self._tracked[response_id] = delegation_id
        done = call_done(call, output_index)
        return [*told, self._envelope(self._tracked[response_id], done)]

    def _ended(self, done: ResponseDone) -> list[ServerEvent]:
        told: list[ServerEvent] = []
        failed: dict[str, Any] | None = None
        if done.status == "failed":
            code, message = done.error_code or "internal", done.error_message or "it failed"
            failed = {"code": code, "message": message}
            told.append(error_of(code, message, is_clients=False))
        if done.response_id in self._tracked:
            delegation_id = self._tracked.pop(done.response_id)
            # an interrupted response has ended with less than it would have said
            status = _STATUS.get(done.status, "incomplete")
            ended = response_ended(done.response_id, self._model, status, done.usage, failed)
            told.append(self._envelope(delegation_id, ended))
        return told

    @property
    def _model(self) -> str:
        return self.configuration.session.settings.llm

    def _envelope(self, delegation_id: str | None, event: dict[str, Any]) -> ResponseEvent:
        return ResponseEvent(event=event, delegation_id=delegation_id)


class _HeardWords:
    """Words of the user's utterances, as fragments that a client appends to each other."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        "Utterance that is not over -> the words that the client was told."
        self._told_until_ms = 0
        self._has_told = False

    def begin(self, item_id: str, now_ms: int) -> None:
        """Begins an utterance."""
        self._told[item_id] = ""
        self._told_until_ms = max(self._told_until_ms, now_ms)

    def more(self, item_id: str, words: str, now_ms: int) -> list[ServerEvent]:
        """Returns the fragment that `words` has more than was told; nothing if there is none.

        The recogniser's last words may differ from its first ones. A client cannot take back what
        it was told, so it gets all words from the first difference on.
        """
        told = self._told.get(item_id, "")
        common = _common_length(told, words)
        new = words[common:]
        if not new.strip():
            return []
        is_separate = common < len(told) if told else self._has_told
        self._told[item_id], self._has_told = words, True
        start_ms = min(self._told_until_ms, now_ms)
        self._told_until_ms = now_ms
        delta = f" {new.lstrip()}" if is_separate else new
        return [InputTranscriptDelta(delta=delta, start_ms=start_ms, end_ms=now_ms)]

    def end(self, item_id: str) -> None:
        """Forgets an utterance that is over."""
        self._told.pop(item_id, None)


def _common_length(told: str, words: str) -> int:
    """Returns the length of the common beginning; case does not count."""
    for index, (old, new) in enumerate(zip(told, words, strict=False)):
        if old.casefold() != new.casefold():
            return index
    return min(len(told), len(words))
