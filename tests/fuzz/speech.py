"""What comes to the doors that speak and answer: JSON of any shape, queries of any text."""

import json
import random
from typing import Any

from core.errors import RequestError
from devices.willow.question import read_question
from devices.willow.speaking import MAX_TEXT_CHARS, read_text
from tests.fuzz.mutate import mutated_bytes
from web.openai.speech_fields import MAX_INPUT_CHARS, decoded

BODY = {
    "model": "tts-1",
    "input": "The kettle is on.",
    "voice": {"id": "alloy"},
    "response_format": "opus",
    "speed": 1.5,
    "instructions": "calmly",
    "stream_format": "sse",
    "language": "de",
}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, "", " ", "mp3", "sse", "x" * 5000, "\ud800", "\x00"),
    *([], [1], {}, {"id": "a"}, {"id": 3}, {"id": "a", "x": {"y": []}}),
)
NAMES = ("text", "language", "model", "conversation_id", "max_new_tokens", "temperature", "top_p")
TEXTS = (
    "",
    " ",
    "0",
    "1",
    "0.7",
    "2.5",
    "-1",
    "nan",
    "1e309",
    "9" * 40,
    "de_AT",
    "-",
    "\x00",
    "ü" * 300,
)


def bodies(lottery: random.Random) -> None:
    """Fields within their bounds, or an error that a client can read."""
    sent = {name: value for name, value in BODY.items() if lottery.random() < 0.9}
    for _ in range(lottery.randrange(3)):
        sent[lottery.choice(tuple(BODY))] = lottery.choice(VALUES)
    data = json.dumps(sent).encode()
    if lottery.random() < 0.3:
        data = mutated_bytes(lottery, data)
    try:
        fields = decoded(data)
    except RequestError as error:
        assert error.code
        assert len(str(error)) < 1000
        str(error).encode()
    else:
        assert 0 < len(fields.input) <= MAX_INPUT_CHARS
        assert 0.25 <= fields.speed <= 4


def queries(lottery: random.Random) -> None:
    """A question, or an error that names the field."""
    sent = {lottery.choice(NAMES): lottery.choice(TEXTS) for _ in range(lottery.randrange(6))}
    try:
        question = read_question(sent, read_text(sent))
    except RequestError as error:
        assert error.param
        assert len(str(error)) < 300
    else:
        assert 0 < len(question.text) <= MAX_TEXT_CHARS
        assert question.temperature is None or 0 <= question.temperature <= 2
        assert question.max_output_tokens is None or question.max_output_tokens >= 1
        assert question.conversation_id is None or len(question.conversation_id) <= 128
