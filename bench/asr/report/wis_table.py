"""`--wis-table`: the benchmark table of Willow Inference Server (WIS), for the models that the
server has.

Lengths and columns are WIS's. WIS's time was the server's own, without upload. The time here is the
client's, from request to answer, the median of several requests. The recordings differ too: speech
from the corpus is repeated and cut to WIS's lengths.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from aiohttp import ClientSession

from bench.asr.upload import UploadClient, wav_bytes
from bench.client.http import Address
from bench.client.realtime import CannotConnect
from bench.tools.stats import markdown
from core.audio import ASR_RATE_HZ, Pcm

LENGTHS_S = (3.84, 10.688, 29.248, 180.0)
"Lengths of speech in WIS's own table, in seconds."

ROUNDS = 5
"Requests per row; the median counts."

HEAD = ("Model", "Speech Duration (ms)", "Inference Time (ms)", "Realtime Multiple")
NOTE = (
    "Inference time: request to answer at the client, median of {rounds}, after one warm-up. "
    "Speech repeated and cut to these lengths."
)


@dataclass(frozen=True, slots=True)
class WisTableRow:
    """One row of the table."""

    model: str
    speech_s: float
    took_ms: float

    @property
    def multiple(self) -> int:
        """Realtime multiple, rounded down as in WIS."""
        return int(1000 * self.speech_s // self.took_ms)


async def measured(
    address: Address,
    models: Sequence[str],
    speech: Pcm,
    *,
    language: str | None,
    timeout_s: float,
    rounds: int = ROUNDS,
) -> AsyncIterator[WisTableRow]:
    """Measures and yields row by row. Raises CannotConnect, also when a model is refused."""
    async with ClientSession(headers=address.headers) as http:
        for model in models:
            uploader = UploadClient(http, address, model, timeout_s)
            for speech_s in LENGTHS_S:
                data = wav_of(speech, speech_s)
                times = []
                for number in range(rounds + 1):
                    answer = await uploader.send("speech.wav", data, language)
                    if answer.error:
                        raise CannotConnect(f"{model}, {speech_s:g} s: {answer.error}")
                    if number:  # the first request warms up
                        times.append(answer.took_ms)
                yield WisTableRow(model, speech_s, median(times))


def table(rows: Sequence[WisTableRow]) -> str:
    """Returns the table as Markdown."""
    return markdown(
        HEAD,
        (
            (row.model, f"{row.speech_s * 1000:.0f}", f"{row.took_ms:.0f}", f"{row.multiple}x")
            for row in rows
        ),
    )


def wav_of(speech: Pcm, length_s: float) -> bytes:
    """Returns 16 kHz speech as a WAV file, repeated and cut to this length."""
    pcm = np.resize(speech, round(length_s * ASR_RATE_HZ))
    return wav_bytes(pcm, ASR_RATE_HZ)
