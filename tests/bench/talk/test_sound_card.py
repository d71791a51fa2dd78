"""`earshot talk --mic` with a fake sound card."""

import asyncio
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.bench.client.fake_realtime_server import ANSWER_MS, Behaviour, speech
from tests.bench.talk.run_talk import command, talk_to

pytestmark = [pytest.mark.live, pytest.mark.alone]


class FakeSoundDevice(ModuleType):
    """A microphone that plays the test's question once, and a speaker that records everything."""

    class PortAudioError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("sounddevice")
        self.played: list[np.ndarray[Any, Any]] = []
        self.is_open = 0

    def InputStream(self, callback: Callable[..., None], **settings: Any) -> "Stream":  # noqa: N802
        return Stream(self, callback, speech(), settings["blocksize"])

    def OutputStream(self, callback: Callable[..., None], **settings: Any) -> "Stream":  # noqa: N802
        return Stream(self, callback, None, settings["blocksize"])


class Stream:
    """A stream whose callbacks come from timers of the event loop, not from PortAudio's thread."""

    def __init__(
        self, device: FakeSoundDevice, callback: Callable[..., None], voice: Any, size: int
    ) -> None:
        self._device, self._callback, self._voice, self._size = device, callback, voice, size
        self._is_open = False
        self._at = 0

    def start(self) -> None:
        self._is_open = True
        self._device.is_open += 1
        self._tick()

    def close(self) -> None:
        self._device.is_open -= self._is_open
        self._is_open = False

    def _tick(self) -> None:
        if not self._is_open:
            return
        data = np.zeros((self._size, 1), np.int16)
        if self._voice is not None:
            part = self._voice[self._at : self._at + self._size]
            data[: len(part), 0] = part
            self._at += self._size
        self._callback(data, self._size, None, None)
        if self._voice is None:
            self._device.played.append(data[:, 0].copy())
        asyncio.get_running_loop().call_later(0.02, self._tick)


@pytest.mark.parametrize("transport", ["webrtc", "ws"])
def test_speech_from_the_microphone_is_answered_on_the_speaker(
    transport: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = FakeSoundDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    options = ("--transport", transport, "--mic", "--turns", 1, "--json")
    code, _ = talk_to(Behaviour(is_ours=True), *options)
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert report["transcript"] == "hello world"
    assert 195 < report["transcript_ms"] <= report["voice_to_voice_ms"] < 900
    assert device.is_open == 0
    loud = [block for block in device.played if np.abs(block).max() > 4000]
    assert abs(len(loud) * 20 - ANSWER_MS) <= 80


def test_a_terminal_shows_how_loud_the_microphone_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeSoundDevice())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, _ = talk_to(Behaviour(is_ours=True), "--transport", "ws", "--mic", "--turns", 1)
    assert code == 0
    shown = capsys.readouterr().out
    assert "  [..........] " in shown
    assert "  [####" in shown
    assert "  you:     hello world\n" in shown


def test_a_missing_sound_library_is_one_error_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert command("--mic") == 2
    assert capsys.readouterr().err == (
        "earshot: --mic needs the package sounddevice: `earshot extras add mic`\n"
    )
