"""Checks of `earshot doctor` that need no server."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devices.registry.database import open_database
from engines.base import TtsInfo
from engines.registry import EngineAvailability
from media.webrtc.rtp import call_path
from server.commands import doctor
from server.commands.doctor_probes import ProbeResult, ProbeVerdict
from server.compose.devices import database_url
from server.config import Config, PathsConfig
from server.config.sections.devices import DevicesConfig
from server.config.sections.ice import IceConfig
from server.config.sections.tools import ToolsConfig
from serving.placement.choose import EngineSelection
from serving.placement.offers import LoadableModel

ODD = "tests.engines.runtime.worker.faulty_engine"


def offer(why: str, *, works: bool, fallback: LoadableModel | None = None) -> LoadableModel:
    options: dict[str, Any] = {} if works else {"weights": "/nowhere/model.bin"}
    return LoadableModel("tiny", ODD, (options,), {}, why=why, fallback=fallback)


def recognisers(first: LoadableModel, monkeypatch: pytest.MonkeyPatch) -> list[ProbeResult]:
    of = SimpleNamespace(choice=EngineSelection("asr", "odd", {}, "it is configured"))

    def as_said(answer: object) -> Callable[..., object]:
        return lambda *_: answer

    monkeypatch.setattr(doctor, "offer_inputs", as_said(of))
    monkeypatch.setattr(doctor, "find_offers", as_said((first,)))
    found: Any = SimpleNamespace(engines={})
    return list(doctor._check_recognisers(Config(), found))


def test_a_broken_gpu_is_a_note_because_the_server_falls_back_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu = offer("on the processor", works=True)
    found = recognisers(offer("on a GPU", works=False, fallback=on_cpu), monkeypatch)
    assert [finding.verdict for finding in found] == ["ok", "note", "ok"]
    assert found[0].what == "asr: odd (it is configured), module odd"
    assert "no weights in /nowhere/model.bin; on the processor instead" in found[1].what
    assert "on the processor; loaded at start" in found[2].what


@pytest.mark.parametrize("fallback", [None, offer("on the processor", works=False)])
def test_a_recogniser_that_works_nowhere_fails(
    fallback: LoadableModel | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = recognisers(offer("on a GPU", works=False, fallback=fallback), monkeypatch)
    assert found.verdict == "fail"


@pytest.mark.parametrize(("verdict", "can_answer"), [("note", True), ("fail", False)])
def test_results_are_printed_as_one_json_object(
    capsys: pytest.CaptureFixture[str], verdict: ProbeVerdict, can_answer: bool
) -> None:
    checks = [ProbeResult("ok", "Python"), ProbeResult(verdict, "no port")]
    assert doctor.show(iter(checks), as_json=True) == can_answer
    assert json.loads(capsys.readouterr().out) == {
        "can_answer": can_answer,
        "checks": [{"verdict": "ok", "what": "Python"}, {"verdict": verdict, "what": "no port"}],
    }


def test_the_device_database_is_checked_but_not_created(tmp_path: Path) -> None:
    config = Config(paths=PathsConfig(state_dir=str(tmp_path / "state")))
    assert doctor._check_devices(config) == ProbeResult(
        "ok", "devices: the database is made at the start"
    )
    assert not (tmp_path / "state").exists()

    async def made() -> None:
        async with open_database(database_url(config)):
            pass

    asyncio.run(made())
    assert doctor._check_devices(config) == ProbeResult("ok", "devices: 0 in the database")


def test_the_path_of_calls_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._check_webrtc_path(Config()) == ProbeResult(
        "ok", "calls take the fast path around aiortc's queues"
    )
    slow = doctor._check_webrtc_path(Config(ice=IceConfig(fast_path=False)))
    assert slow.verdict == "note"
    assert slow.what.startswith(
        "calls use aiortc's public interface only ([ice] fast_path = false)"
    )
    monkeypatch.setattr(call_path, "call_path_obstacles", lambda: ("aiortc.X._y is missing",))
    lacking = doctor._check_webrtc_path(Config(ice=IceConfig(ports="40000-40999")))
    assert lacking.verdict == "note"
    assert "(aiortc.X._y is missing)" in lacking.what
    assert lacking.what.endswith("; [ice] ports has no effect")
    wrong = doctor._check_webrtc_path(Config(ice=IceConfig(ports="40000-40999", fast_path=False)))
    assert wrong.verdict == "fail"


def test_tools_of_modules_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doctors_bins.py").write_text(
        "from pipeline.tools.functions import tool\n"
        "@tool()\n"
        "def which_bin() -> str:\n"
        "    'Tells which bin is collected.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loads = Config(tools=ToolsConfig(modules=("doctors_bins",)))
    assert list(doctor._check_functions(loads)) == [
        ProbeResult("ok", "tools of tools.modules: which_bin")
    ]
    (missing,) = doctor._check_functions(Config(tools=ToolsConfig(modules=("not_there",))))
    assert missing.verdict == "fail"
    assert "'not_there' cannot be imported: No module named 'not_there'" in missing.what
    assert list(doctor._check_functions(Config())) == []


def test_a_wrong_database_url_is_reported_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "devices.db").write_text("no database, but a longer text")
    spoilt = doctor._check_devices(Config(paths=PathsConfig(state_dir=str(tmp_path))))
    assert (spoilt.verdict, "not a database" in spoilt.what) == ("note", True)
    wrong = doctor._check_devices(Config(devices=DevicesConfig(database="odd://u:hidden@host/x")))
    assert wrong.verdict == "fail"
    assert "hidden" not in wrong.what


@pytest.mark.parametrize(
    ("has_word_times", "said"),
    [(True, "says when each word sounds"), (False, "in proportion to its sound")],
)
def test_a_voice_reports_whether_it_has_word_times(
    has_word_times: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = TtsInfo("here", 24_000, {"en": ("a",)}, has_word_times=has_word_times)
    monkeypatch.setattr(doctor, "load", lambda *_: SimpleNamespace(info=info))
    monkeypatch.setattr(
        doctor, "choose_one", lambda *_: EngineSelection("tts", "here", {}, "configured")
    )
    known: Any = SimpleNamespace(
        engines={"tts": [EngineAvailability("here", True, "", origin="acme 1.2")]}
    )
    found = doctor._check_chosen_engine(Config(), "tts", known, doctor.LoadedEngines())
    assert found.verdict == "ok"
    assert found.what.startswith("tts: here (configured), acme 1.2; ")
    assert said in found.what


def test_a_terminal_shows_verdicts_in_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    doctor.print_result(ProbeResult("fail", "no voice"))
    assert capsys.readouterr().out == "\x1b[31mFAIL\x1b[0m  no voice\n"
