"""What Willow's devices may say: any bytes, and whole talks of several devices."""

import json
import random
from typing import Any

from devices.arbitration import Arbitration
from firmware_protocol.willow.decode import MAX_TEXT_CHARS, MalformedMessage, decode
from firmware_protocol.willow.encode import MAX_MESSAGE_BYTES, encode
from firmware_protocol.willow.messages import Endpoint, Notify, Result, Unknown
from tests.firmware_protocol.willow.vectors import FROM_DEVICE
from tests.fuzz.mutate import mutated_bytes, mutated_json

SEEDS: tuple[Any, ...] = tuple(json.loads(one.wire) for one in FROM_DEVICE)
ALPHABET = 'ab \n\r\t"\\é😀\x00\u2028…'


def decoding(lottery: random.Random) -> None:
    """A value within its bounds, or an error that can be told."""
    fields = lottery.choice(SEEDS)
    if lottery.random() < 0.5:
        fields = mutated_json(lottery, fields)
    data = json.dumps(fields).encode()
    if lottery.random() < 0.5:
        data = mutated_bytes(lottery, data)
    try:
        message = decode(data)
    except MalformedMessage as error:
        assert len(str(error)) < 200
        return
    match message:
        case Endpoint(text, language):
            assert len(text) <= MAX_TEXT_CHARS
            assert "\n" not in text + language
        case Unknown(names):
            assert len(str(names)) < 1000


def encoding(lottery: random.Random) -> None:
    """Whatever is said fits the firmware's buffer, in one line."""
    text = "".join(lottery.choice(ALPHABET) for _ in range(lottery.choice((3, 300, 6000))))
    for message in (Result(ok=True, speech=text), Notify(id=2, text=text, audio_url="http://a/")):
        wire = encode(message)
        assert len(wire.encode()) <= MAX_MESSAGE_BYTES
        fields = json.loads(wire)
        said = fields["result"]["speech"] if "result" in fields else fields["data"]["text"]
        assert not set("\n\r\t\x00\u2028") & set(said)


def waking(lottery: random.Random) -> None:
    """Wake words, departures and moments in any order: everybody is told at most once per wake
    word, nobody is forgotten, and no decision has two winners."""
    race, now = Arbitration(), 0.0
    group = {name: lottery.choice("xy") for name in "abcdef"}
    waiting = dict.fromkeys(group, 0)
    for _ in range(lottery.randrange(30)):
        now += lottery.choice((0.0, 0.05, 0.2, 2.0)) * lottery.random()
        device = lottery.choice("abcdef")
        members = frozenset(name for name, its in group.items() if its == group[device])
        match lottery.randrange(4):
            case 0:
                told = race.tick(now)
            case 1:
                told = race.left(group[device], device, members - {device})
                waiting[device] = 0
            case _:
                level_db = lottery.choice((None, lottery.uniform(-90, 0)))
                waiting[device] += 1
                told = race.heard(group[device], device, level_db, members, now)
        for verdict in told:
            waiting[verdict.device] -= 1
    for verdict in race.tick(now + 10):
        waiting[verdict.device] -= 1
    assert set(waiting.values()) <= {0}
