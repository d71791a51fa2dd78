"""The engines' report is passed on as it is, anew each time."""

import msgspec
import pytest

from tests.web.client import Client, with_client
from web.engines import EngineChoice, EngineOffer, EnginesReport, engine_routes

pytestmark = pytest.mark.live


def _choice(name: str, *languages: str) -> EngineChoice:
    return EngineChoice(name, "only one installed", (EngineOffer(name, languages, True),))


REPORT = EnginesReport(
    asr=EngineChoice(
        "pocketsphinx",
        "no Whisper weights in models/",
        (
            EngineOffer("pocketsphinx", ("en",), True),
            EngineOffer("faster_whisper", ("*",), False, "no weights"),
        ),
    ),
    llm=_choice("intents", "en", "de"),
    tts=_choice("espeak", "en", "de"),
    vad=_choice("silero"),
    languages=("en", "de", "fr", "es"),
)


def test_the_report_survives_the_wire() -> None:
    calls = []

    def report() -> EnginesReport:
        calls.append(1)
        return REPORT

    async def use(client: Client) -> None:
        for _ in range(2):
            answer = await client.get("/earshot/engines")
            assert answer.headers["Cache-Control"] == "no-store"
            assert msgspec.convert(await answer.json(), EnginesReport) == REPORT

    with_client(engine_routes(report), use)
    assert len(calls) == 2
