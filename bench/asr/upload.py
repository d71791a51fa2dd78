"""Uploads one recording to `POST /v1/audio/transcriptions`."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from wave import open as open_wave

from aiohttp import ClientSession, ClientTimeout, FormData
from msgspec import DecodeError
from msgspec.json import decode

from bench.asr.streaming import StreamedTranscript
from bench.client.http import Address, connect_errors, refusal
from bench.client.realtime import CannotConnect
from core.audio import Pcm
from media.pcm import to_bytes

FATAL_STATUSES = {401, 403, 404, 405}
"HTTP statuses with which no other recording would succeed either."

NO_TIMEOUT = ClientTimeout(total=None)
"""aiohttp's own limits are off: three minutes of speech can take longer than its limit for a quiet
socket. The limit of a request is `timeout_s`."""


@dataclass(frozen=True, slots=True)
class UploadClient:
    """Sends files unchanged: the server decodes them."""

    http: ClientSession
    address: Address
    model: str
    timeout_s: float
    decoding: Mapping[str, str] = field(default_factory=dict)
    "Further form fields."

    async def send(self, name: str, data: bytes, language: str | None) -> StreamedTranscript:
        """Uploads a file; returns the text and the time from request to answer. Raises
        CannotConnect."""
        form = FormData()
        form.add_field("file", data, filename=name, content_type="application/octet-stream")
        form.add_field("model", self.model)
        form.add_field("response_format", "json")
        if language:
            form.add_field("language", language)
        for name_of_field, value in self.decoding.items():
            form.add_field(name_of_field, value)
        clock = asyncio.get_running_loop().time
        began = clock()
        url = f"{self.address.url}/v1/audio/transcriptions"
        try:
            async with asyncio.timeout(self.timeout_s):
                with connect_errors(self.address):
                    async with self.http.post(
                        url, data=form, ssl=self.address.ssl(), timeout=NO_TIMEOUT
                    ) as response:
                        if response.status in FATAL_STATUSES:
                            raise await refusal(response)
                        error = "" if response.ok else str(await refusal(response))
                        body = await response.read()
        except TimeoutError:
            return StreamedTranscript(
                "", 1000 * self.timeout_s, error=f"no answer in {self.timeout_s:g} s"
            )
        return StreamedTranscript(
            "" if error else _text(body), 1000 * (clock() - began), error=error
        )


def wav_bytes(pcm: Pcm, rate_hz: int) -> bytes:
    """Returns mono sound as a WAV file of 16 bits."""
    file = BytesIO()
    with open_wave(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate_hz)
        wav.writeframes(to_bytes(pcm))
    return file.getvalue()


def _text(body: bytes) -> str:
    try:
        answered = decode(body)
        return str(answered["text"]).strip()
    except (DecodeError, KeyError, TypeError) as error:
        raise CannotConnect(f"the server's answer has no text: {body[:80]!r}") from error
