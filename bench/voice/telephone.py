"""Turns by telephone: the same recordings as through the other doors, as G.711 at 8 kHz."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession

from bench.client.conversation import TurnReport
from bench.client.http import Address
from bench.client.latency_probe import AudioReceiver
from bench.client.microphone import RATE_HZ
from bench.client.telephone import (
    TelephonePeer,
    TelephoneSystem,
    TwilioAccount,
    call_by_audiosocket,
    call_by_twilio,
)
from core.audio import Pcm
from core.conversation.ids import new_id
from media.codecs import g711
from media.resample import Resampler

POLL_S = 0.05
"Interval of the checks whether the answer is over."

QUIET_S = 1.0
"Silence after which an answer is over: a telephone has no event for that."

PUBLIC_URL = "https://voice.example.com"
"Address of the server for the simulated Twilio."


@dataclass(frozen=True, slots=True)
class TelephoneLines:
    """How the server that is measured is called by telephone."""

    audiosocket_port: int
    auth_token: str = field(repr=False)

    @property
    def environ(self) -> Mapping[str, str]:
        """Settings of the server, as environment variables."""
        return {
            "EARSHOT_TELEPHONE__AUDIOSOCKET_PORT": str(self.audiosocket_port),
            "EARSHOT_TELEPHONE__TWILIO_AUTH_TOKEN": self.auth_token,
            "EARSHOT_TELEPHONE__TWILIO_URL": PUBLIC_URL,
        }


def free_lines() -> TelephoneLines:
    """Returns lines with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return TelephoneLines(port, new_id("token"))


class TelephoneConversation:
    """One call, turn by turn. timeout_s: longest wait for an answer."""

    def __init__(self, peer: TelephonePeer, receiver: AudioReceiver, timeout_s: float) -> None:
        self._peer, self._receiver, self._timeout_s = peer, receiver, timeout_s

    async def say(self, pcm: Pcm, span: tuple[int, int]) -> TurnReport:
        """Sends audio in real time and waits for the end of the answer.

        pcm: samples at RATE_HZ. span: first and one past the last sample of speech.
        """
        resampler = Resampler(RATE_HZ, g711.RATE_HZ)
        narrow = await asyncio.to_thread(resampler.push, pcm)
        self._receiver.begin_turn()
        microphone = self._peer.microphone
        start = await microphone.say(narrow)
        last = min(len(narrow) - 1, span[1] * g711.RATE_HZ // RATE_HZ)
        ended_at = microphone.spoken_at(start + last)
        await self._wait_for_answer(asyncio.get_running_loop().time() + self._timeout_s)
        heard, audio = self._receiver.audible_at, self._receiver.audible_frames()
        took_ms = None if heard is None or ended_at is None else 1000 * (heard - ended_at)
        return TurnReport(
            status="unanswered" if heard is None else "answered",
            transcript="",
            reply="",
            error="",
            voice_to_voice_ms=None if took_ms is None else round(took_ms, 1),
            first_words_ms=None,
            transcript_ms=None,
            reply_text_ms=None,
            server_ms=None,
            stages=(),
            answer_ms=round(sum(frame.duration_ms for frame in audio), 1),
            audio=audio,
        )

    async def _wait_for_answer(self, give_up_at: float) -> None:
        receiver, now = self._receiver, asyncio.get_running_loop().time()
        while now < give_up_at:
            if receiver.audible_at is not None and now > receiver.silent_from + QUIET_S:
                return
            await asyncio.sleep(POLL_S)
            now = asyncio.get_running_loop().time()


@asynccontextmanager
async def open_call(
    address: Address, system: TelephoneSystem, lines: TelephoneLines, timeout_s: float
) -> AsyncGenerator[TelephoneConversation, None]:
    """Opens a call while the body runs. Raises CannotConnect, OSError."""
    receiver = AudioReceiver(is_paced=system == "audiosocket")
    if system == "audiosocket":
        async with call_by_audiosocket(
            "127.0.0.1", lines.audiosocket_port, receiver.receive
        ) as peer:
            yield TelephoneConversation(peer, receiver, timeout_s)
        return
    account = TwilioAccount(lines.auth_token, PUBLIC_URL, call_sid=new_id("CA"))
    async with (
        ClientSession(address.url) as http,
        call_by_twilio(http, account, receiver.receive) as twilio,
    ):
        yield TelephoneConversation(twilio, receiver, timeout_s)
