"""What a session is asked to do: frozen, checked by the door that builds it, changed as a whole."""

from dataclasses import dataclass, field
from typing import Literal

from core.events import Modality

DEFAULT = "default"
"Engine and voice name that always works: whatever the server chose."


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """How utterances end. `server_vad` waits `silence_ms`, `semantic_vad` as `eagerness` says."""

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    "Speech probability at and above which a frame counts as speech."
    prefix_padding_ms: int = 300
    "Audio kept from before the first speech frame: onsets are quiet."
    silence_ms: int = 500
    "Silence that ends the utterance (server_vad)."
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    "How soon to answer (semantic_vad)."
    create_response: bool = True
    interrupt_response: bool = True


@dataclass(frozen=True, slots=True)
class SessionSettings:
    answers: bool = True
    "False: transcription only."
    modality: Modality = "audio"
    "Whether answers are spoken or only written."
    instructions: str = ""
    llm: str = DEFAULT
    asr: str = DEFAULT
    transcribes: bool = True
    "Whether the client is sent what the user said."
    language: str | None = None
    "ISO 639-1; None is the server's default language."
    prompt: str = ""
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    "None: the client commits and asks for responses itself."
    voice: str = DEFAULT
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """One `response.create`: what differs from the session for this answer only."""

    modality: Modality | None = None
    instructions: str | None = None
    voice: str | None = None
