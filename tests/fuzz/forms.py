"""What comes to the REST door as a form: fields of any text, and bytes that are hardly one."""

import asyncio
import random

from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from core.errors import EarshotError, RequestError
from media.spool import SpoolLimits, Spools
from tests.fuzz.mutate import mutated_bytes
from web.openai.form import read_form
from web.openai.job import transcription, translation

NAMES = (
    "model",
    "language",
    "languages[]",
    "prompt",
    "keywords[]",
    "response_format",
    "temperature",
    "timestamp_granularities[]",
    "timestamp_granularities",
    "include[]",
    "stream",
    "chunking_strategy",
    "chunking_strategy[type]",
    "chunking_strategy[threshold]",
    "beam_size",
    "prefix",
    "padding",
    "no_speech_threshold",
    "task",
    "[",
    "]",
    "model[]",
    "",
)
TEXTS = (
    "",
    " ",
    "default",
    "de",
    "German",
    "verbose_json",
    "json",
    "text",
    "word",
    "segment",
    "logprobs",
    "true",
    "False",
    "1",
    "0",
    "-1",
    "0.5",
    "1e309",
    "nan",
    "null",
    "server_vad",
    "auto",
    "max",
    "translate",
    "[]",
    "{}",
    "\x00",
    "ü" * 50,
)

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ndefault\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\nContent-Transfer-Encoding: binary\r\n\r\nRIFF....\r\n"
    b"--b\r\nContent-Disposition: form-data; name=stream\r\nContent-Length: 4\r\n\r\ntrue\r\n"
    b"--b--\r\n"
)
MAX_FILE_BYTES = 500


def fields(lottery: random.Random) -> None:
    """A job, or an error that names the field."""
    sent = [(lottery.choice(NAMES), lottery.choice(TEXTS)) for _ in range(lottery.randrange(8))] + [
        ("model", "default")
    ] * lottery.randrange(2)
    for understood in (transcription, translation):
        try:
            job = understood(sent)
        except RequestError as error:
            assert error.param
        else:
            assert all(0 < one <= 1 for one in job.options.temperatures)
            assert job.options.beam_size is None or 1 <= job.options.beam_size <= 10


def forms(lottery: random.Random) -> None:
    """The fields, or an error of ours; nothing is kept."""
    data = mutated_bytes(lottery, FORM)
    cut = lottery.randrange(len(data) + 1)
    spools = Spools(SpoolLimits(max_bytes=MAX_FILE_BYTES))
    asyncio.run(_read(spools, data[:cut], data[cut:]))
    assert (spools.count, spools.used_bytes) == (0, 0)


async def _read(spools: Spools, *pieces: bytes) -> None:
    loop = asyncio.get_running_loop()
    content = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    for piece in pieces:
        if piece:
            content.feed_data(piece)
    content.feed_eof()
    request = make_mocked_request(
        "POST", "/", headers={"Content-Type": "multipart/form-data; boundary=b"}, payload=content
    )
    with spools.open() as spool:
        try:
            found = await read_form(request, spool, lambda name: name in NAMES)
        except EarshotError:
            return
        assert all(name in NAMES for name, _ in found)
        assert spool.size_bytes <= MAX_FILE_BYTES
