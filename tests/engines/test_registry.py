"""Names become engines; wrong names, missing libraries and wrong options are said plainly."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, EngineMissing
from engines.registry import Available, available, load
from tests.shared import ROOT

pytestmark = pytest.mark.live


def third_party(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    (folder / "acme").mkdir()
    (folder / "acme" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    return f"acme.{name}"


STRUCT = "from msgspec import Struct\nclass Settings(Struct, frozen=True):\n    level: int = 1\n"


def test_a_third_partys_module_is_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"{STRUCT}def create(settings):\n    return ('engine', settings.level)\n"
    name = third_party(tmp_path, source, monkeypatch, "plain")
    engine: Any = load("tts", name, {"level": 3})
    assert engine == ("engine", 3)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ("", "not installed; pip install nosuchlib"),
        ("REQUIRES = {'nosuchlib': 'nosuch-wheel'}\n", "not installed; pip install nosuch-wheel"),
        (
            "EXTRA = 'voice'\nREQUIRES = {'nosuchlib': 'nosuch-wheel'}\n",
            "not installed; `earshot extras add voice` installs it",
        ),
    ],
)
def test_a_missing_library_comes_with_its_pip_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, message: str
) -> None:
    source = f"{STRUCT}{known}def create(settings):\n    import nosuchlib.part\n"
    name = third_party(tmp_path, source, monkeypatch, f"lacking_{len(known)}")
    with pytest.raises(EngineMissing, match=message):
        load("asr", name, {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("esspeak", "tts: no engine 'esspeak'; there are: espeak, .*or a module path with a dot"),
        ("espeak_library", "no engine 'espeak_library'"),
        ("acme_without.engine", "no engine 'acme_without.engine'"),
        ("json.decoder", "no engine 'json.decoder'"),
    ],
)
def test_unknown_engines_are_named_with_those_that_exist(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("tts", name, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sped": 1}, "tts.espeak: unknown key 'sped'; known keys: speed"),
        ({"speed": "fast"}, r"tts.espeak: Expected `float`, got `str` - at `\$.speed`"),
        ({"speed": 9}, "tts.espeak: Expected `float` <= 2.5"),
    ],
)
def test_wrong_options_name_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("tts", "espeak", options)


def test_what_is_installed_is_listed_and_parts_are_not() -> None:
    assert available("tts")[0] == Available("espeak", True, "")
    assert [engine.name for engine in available("vad")] == ["gated", "silero", "webrtc"]


def test_a_missing_library_shows_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.registry.find_spec", lambda name: None)
    by_name = {engine.name: engine for engine in available("vad")}
    assert by_name["webrtc"] == Available(
        "webrtc", False, "not installed; pip install webrtcvad-wheels"
    )


def test_listing_imports_no_model_library() -> None:
    heavy = ["ctranslate2", "faster_whisper", "onnxruntime", "webrtcvad", "pocketsphinx", "hassil"]
    code = (
        "import sys\nfrom engines.registry import available\n"
        "for kind in ('vad', 'endpoint', 'asr', 'llm', 'tts'): assert available(kind)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
