"""Audio in events: base64 of s16le at 24 or 16 kHz, or of G.711 at 8 kHz, in both directions."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec import UNSET

from core.audio import Pcm
from core.conversation.events import FormatName
from media.codecs import g711
from media.pcm import from_bytes, to_bytes
from media.resample import Resampler
from signaling.realtime.protocol.structs import OptionalField, StrictStruct

WIRE_RATE_HZ = 24_000
"Rate of PCM in the Realtime API, in both directions. Clients hard-code it."

WIDE_RATE_HZ = 16_000
"Our additional rate, which microphones of small devices and speech toolkits use."

MAX_DELTA_SAMPLES = 12_000
"""Most audio per `response.output_audio.delta`: 0.5 s at 24 kHz, 32 kB as base64. Clients can start
playing at once, and it stays below 64 KiB, a limit of messages in some clients."""

PCM: FormatName = "audio/pcm"
WIDE_PCM: FormatName = "audio/pcm;rate=16000"
"Our additional format: PCM at 16 kHz. A session and its responses name formats by these texts."

_LAWS: Mapping[FormatName, g711.G711Law] = {"audio/pcmu": "mu", "audio/pcma": "a"}


class PcmFormat(StrictStruct, frozen=True, tag="audio/pcm", tag_field="type"):
    """PCM, s16le. Without a rate it is 24 kHz."""

    rate: OptionalField[Literal[16000, 24000]] = UNSET


class PcmuFormat(StrictStruct, frozen=True, tag="audio/pcmu", tag_field="type"):
    """G.711 mu-law, 8 kHz."""


class PcmaFormat(StrictStruct, frozen=True, tag="audio/pcma", tag_field="type"):
    """G.711 A-law, 8 kHz."""


AudioFormat: TypeAlias = PcmFormat | PcmuFormat | PcmaFormat


def name_of(sent: AudioFormat | None) -> FormatName:
    """Returns the name of a format; null means 24 kHz PCM."""
    match sent:
        case PcmFormat(rate=16000):
            return WIDE_PCM
        case PcmuFormat():
            return "audio/pcmu"
        case PcmaFormat():
            return "audio/pcma"
        case _:
            return PCM


def says_rate(sent: AudioFormat | None) -> bool:
    """Returns True if the client stated its rate, directly or by a format that has only one."""
    return sent is not None and not (isinstance(sent, PcmFormat) and not sent.rate)


def format_json(name: FormatName) -> dict[str, object]:
    """Returns a format as JSON."""
    return {"type": PCM, "rate": rate_of(name)} if _is_pcm(name) else {"type": name}


def rate_of(name: FormatName) -> int:
    """Returns the sample rate of a format in Hz."""
    if name == WIDE_PCM:
        return WIDE_RATE_HZ
    return WIRE_RATE_HZ if name == PCM else g711.RATE_HZ


def sample_bytes(name: FormatName) -> int:
    """Returns the bytes of one sample of a format."""
    return 2 if _is_pcm(name) else 1


def decode_audio(data: bytes, name: FormatName) -> Pcm:
    """Decodes a client's audio to int16 PCM. Raises RequestError invalid_audio."""
    return from_bytes(data) if _is_pcm(name) else g711.decode(data, _LAWS[name])


def encode_audio(pcm: Pcm, name: FormatName) -> bytes:
    """Encodes int16 PCM, already at the format's rate."""
    return to_bytes(pcm) if _is_pcm(name) else g711.encode(pcm, _LAWS[name])


def _is_pcm(name: FormatName) -> bool:
    return name in (PCM, WIDE_PCM)


@dataclass(frozen=True, slots=True)
class _OutputItem:
    """Item whose audio is being encoded."""

    id: str
    format: FormatName
    resampler: Resampler


class OutputAudioEncoder:
    """Encodes the audio of one item after another, from 24 kHz PCM to the client's format."""

    def __init__(self) -> None:
        self._item: _OutputItem | None = None

    def push(self, item_id: str, pcm: Pcm, name: FormatName) -> Iterator[str]:
        """Yields base64 pieces of at most MAX_DELTA_SAMPLES. An item keeps the format it began
        with."""
        item = self._item
        if item is None or item.id != item_id:
            item = _OutputItem(item_id, name, Resampler(WIRE_RATE_HZ, rate_of(name)))
            self._item = item
        return _pieces(item.resampler.push(pcm), item.format)

    def finish(self, item_id: str) -> Iterator[str]:
        """Yields the rest of an item's audio that the resampler still holds."""
        item, self._item = self._item, None
        if item is None or item.id != item_id:
            return iter(())
        return _pieces(item.resampler.flush(), item.format)


def _pieces(pcm: Pcm, name: FormatName) -> Iterator[str]:
    for start in range(0, len(pcm), MAX_DELTA_SAMPLES):
        yield b64encode(encode_audio(pcm[start : start + MAX_DELTA_SAMPLES], name)).decode()
