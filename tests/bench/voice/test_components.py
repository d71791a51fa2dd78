"""The end of a clip, the stub engines, the table and the chart, without a connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tomllib import loads
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from bench.client.conversation import TurnReport
from bench.client.microphone import RATE_HZ
from bench.client.turn import StageTimes, Status
from bench.server.stub_engines import asr, llm, tts
from bench.voice.chart import chart
from bench.voice.clips import recorded_utterance
from bench.voice.measure import VoiceTurn
from bench.voice.stub_server import parse_stub_delays
from bench.voice.summary import compared, comparison, summary, table
from core.audio import ASR_RATE_HZ, Pcm, silence
from core.errors import RequestError
from engines.base import AsrItem, Message, TextDelta
from engines.registry import load
from tests.loop import run_virtual


def fading_beep(loud_ms: int, soft_ms: int) -> Pcm:
    """Returns a loud tone, then one that is 40 dB softer."""
    time_s = np.arange(RATE_HZ) / RATE_HZ
    wave = np.sin(2 * np.pi * 440 * time_s)
    loud, soft = (ms * RATE_HZ // 1000 for ms in (loud_ms, soft_ms))
    return np.concatenate([10_000 * wave[:loud], 100 * wave[:soft]]).astype(np.int16)


def test_a_clip_is_cut_at_its_last_audible_sample() -> None:
    clip = recorded_utterance(
        "beep", np.concatenate([silence(200, RATE_HZ), fading_beep(305, 200)])
    )
    assert clip.end == pytest.approx(0.505 * RATE_HZ, abs=RATE_HZ // 440)
    assert np.abs(clip.pcm[clip.end :].astype(np.int32)).max() < 328


def test_a_clip_without_speech_is_refused() -> None:
    with pytest.raises(RequestError, match=r"quiet\.wav: it contains no speech"):
        recorded_utterance("quiet.wav", silence(500, RATE_HZ))


def test_stubs_are_engines_that_the_registry_loads(tmp_path: Path) -> None:
    config = loads(parse_stub_delays("50,150,80").write(tmp_path).read_text())
    for kind in ("asr", "llm", "tts"):
        assert config[kind]["engine"] == f"bench.server.stub_engines.{kind}"
    recogniser = load("asr", config["asr"]["engine"], config["asr"]["options"])
    assert recogniser.info.name == "stub"
    assert load("llm", config["llm"]["engine"], config["llm"]["options"]).name == "stub"
    assert load("tts", config["tts"]["engine"], config["tts"]["options"]).info.name == "stub"


def test_partials_of_the_stub_grow_into_the_final() -> None:
    model = asr.create(asr.Settings())
    items = [
        AsrItem("u", silence(ms, ASR_RATE_HZ), is_final=is_final)
        for ms, is_final in ((100, False), (600, False), (600, True))
    ]
    partials = [result.text for result in model.decode(items)]
    assert partials == ["", "turn on", "turn on the kitchen lights"]


def test_the_stub_model_and_voice_wait_once_per_answer() -> None:
    async def texts() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    async def run() -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        model = llm.create(llm.Settings(delay_ms=150))
        deltas = [delta async for delta in model.reply([Message("user")], [], language="en")]
        assert clock() - began == pytest.approx(0.15)
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)).strip() == llm.ANSWER
        voice = tts.create(tts.Settings(delay_ms=80, tone_ms=100))
        frames = [frame async for frame in voice.speak(texts(), language="en")]
        assert clock() - began == pytest.approx(0.23)
        assert [frame.start for frame in frames] == [n * 480 for n in range(10)]
        assert frames[0].pcm[0] == tts.LEVEL

    run_virtual(run())


def turn(voice_to_voice_ms: float | None, status: Status = "answered") -> VoiceTurn:
    times = (voice_to_voice_ms, 400.0, 200.0, 250.0, 180.0)
    return VoiceTurn(0, 0, "clip", TurnReport(status, "on", "yes", "", *times, (), 400.0))


def test_missing_and_premature_answers_have_no_latency() -> None:
    found = [turn(300), turn(320), turn(-80), turn(None, "unanswered")]
    text = table(found, [0.2])
    assert "| **voice to voice, at the client** | 310 | 319 | 300 | 320 | 2 |" in text
    assert "1 of 4 turns were not answered." in text
    assert "1 of 4 turns were answered before they were over." in text
    report = summary(found, [0.2])
    assert (report["answered"], report["too_early"]) == (3, 1)


def test_the_chart_has_every_stage_and_the_percentiles() -> None:
    waterfall = [
        StageTimes("endpoint_wait", 0, 200),
        StageTimes("asr", 60, 110, True),
        StageTimes("llm", -5, 260),
    ]
    drawing = chart("<voice>", "a quiet machine", waterfall, [float(ms) for ms in range(280, 381)])
    root = ET.fromstring(drawing)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"<voice>", "endpoint wait", "recognition", "language model", "voice to voice"} <= texts
    assert {"200 ms", "50 ms, begun early", "265 ms", "p50 330 ms", "p95 375 ms"} <= texts
    bars = [b for b in root.iter("{http://www.w3.org/2000/svg}rect") if b.get("class") != "box"]
    assert len(bars) == 4
    assert all(0 <= float(bar.attrib["x"]) <= 720 for bar in bars)


def test_doors_are_compared_by_all_turns_and_by_rounds() -> None:
    found = {
        "webrtc": [[turn(300), turn(310)], [turn(400), turn(410)]],
        "twilio": [[turn(330), turn(340)], [turn(390), turn(400)]],
    }
    first, second = compared(found)
    assert "difference_ms" not in first
    assert second["difference_ms"] == {"p50": 10.0, "min": -10.0, "max": 30.0}
    assert "| +10.0 | -10.0 to +30.0 |" in comparison(found)
