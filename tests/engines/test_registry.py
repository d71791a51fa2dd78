"""Engines by name; clear errors for wrong names, missing libraries and wrong options."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, EngineError, EngineMissing
from core.packages.plugins import BUILT_IN
from engines.registry import EngineAvailability, available, load, refused
from tests.plugins.packages import declare, searched
from tests.shared import ROOT

pytestmark = pytest.mark.live


def third_party(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    (folder / "acme").mkdir()
    (folder / "acme" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    return f"acme.{name}"


STRUCT = "from msgspec import Struct\nclass Settings(Struct, frozen=True):\n    level: int = 1\n"


VOICE = (
    STRUCT
    + """
class Voice:
    def __init__(self, settings):
        self.info = settings.level
    def speak(self, text, **wishes): ...
create = Voice
"""
)


def test_a_third_partys_module_is_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = third_party(tmp_path, VOICE, monkeypatch, "plain")
    engine: Any = load("tts", name, {"level": 3})
    assert engine.info == 3


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
def test_a_missing_library_is_named_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, message: str
) -> None:
    source = f"{STRUCT}{known}def create(settings):\n    import nosuchlib.part\n"
    name = third_party(tmp_path, source, monkeypatch, f"lacking_{len(known)}")
    with pytest.raises(EngineMissing, match=message):
        load("asr", name, {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "esspeak",
            "tts: no engine 'esspeak'; there are: bark, espeak, .*or a module path with a dot",
        ),
        ("espeak_library", "no engine 'espeak_library'"),
        ("acme_without.engine", "no engine 'acme_without.engine'"),
        ("json.decoder", "no engine 'json.decoder'"),
    ],
)
def test_the_error_for_an_unknown_engine_lists_the_known_ones(name: str, message: str) -> None:
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
def test_the_error_for_wrong_options_names_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("tts", "espeak", options)


def test_engines_are_listed_without_their_parts() -> None:
    assert {one.name: one for one in available("tts")}["espeak"] == EngineAvailability(
        "espeak", True, ""
    )
    assert [engine.name for engine in available("vad")] == ["gated", "silero", "webrtc"]


def test_a_missing_library_is_shown_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.registry.find_spec", lambda name: None)
    by_name = {engine.name: engine for engine in available("vad")}
    assert by_name["webrtc"] == EngineAvailability(
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


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a folder in which packages are found."""
    with searched(tmp_path, monkeypatch) as folder:
        yield folder


def engine_of(site: Path, entry: str, source: str) -> None:
    """Installs a package `acme 1.0` with one engine."""
    module = f"acme_{entry.replace('.', '_')}"
    (site / f"{module}.py").write_text(source)
    declare(site, "acme", {"earshot.engines": {entry: module}})


def test_an_engine_of_a_package_is_listed_and_loaded_by_its_name(site: Path) -> None:
    engine_of(site, "tts.robot", VOICE)
    robot = next(engine for engine in available("tts") if engine.name == "robot")
    assert robot == EngineAvailability("robot", True, "", origin="acme 1.0")
    engine: Any = load("tts", "robot", {"level": 5})
    assert engine.info == 5
    with pytest.raises(ConfigError, match=r"tts\.robot: Expected `int`, got `str`"):
        load("tts", "robot", {"level": "high"})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import nosuchlib", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("create = print", "has no class `Settings` that is a msgspec.Struct"),
        ("class Settings: pass\ncreate = print", "has no class `Settings`"),
        (STRUCT, "has no function `create`"),
    ],
)
def test_a_broken_engine_is_listed_with_the_reason(source: str, why: str, site: Path) -> None:
    engine_of(site, f"tts.broken{len(source)}", source)
    (broken,) = [engine for engine in available("tts") if engine.origin == "acme 1.0"]
    assert not broken.installed
    assert broken.reason.startswith("broken: ")
    assert why in broken.reason
    with pytest.raises(EngineMissing, match=f"of acme 1.0 is broken: .*{why}"):
        load("tts", broken.name, {})


def test_an_engine_that_fails_while_listed_does_not_affect_others(site: Path) -> None:
    engine_of(site, "tts.limping", f"{VOICE}def unavailable_reason():\n    raise KeyError('x')\n")
    by_name = {engine.name: engine for engine in available("tts")}
    assert by_name["limping"].reason == "broken: KeyError: 'x'"
    assert by_name["espeak"] == EngineAvailability("espeak", True, "")


@pytest.mark.parametrize(
    ("create", "why"),
    [
        ("return object()", r"the object that acme 1\.0 creates is no Tts: it has no info, speak"),
        ("raise KeyError('x')", r"the engine of acme 1\.0 cannot be loaded: KeyError: 'x'"),
        ("import nosuchlib", "not installed; pip install nosuchlib"),
    ],
)
def test_the_error_of_an_engine_of_a_package_names_the_package(
    create: str, why: str, site: Path
) -> None:
    engine_of(site, f"tts.odd{len(create)}", f"{STRUCT}def create(settings):\n    {create}\n")
    with pytest.raises(EngineError, match=why):
        load("tts", f"odd{len(create)}", {})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("tts.espeak", "'espeak' is built in: the package has to rename it"),
        ("tts.shared", "'shared' is built in"),
        ("robot", "its name must be KIND.NAME with one of the kinds vad, wake, endpoint, asr"),
        ("ears.robot", "its name must be KIND.NAME"),
    ],
)
def test_an_engine_with_a_wrong_name_is_left_out(entry: str, why: str, site: Path) -> None:
    engine_of(site, entry, VOICE)
    assert all(engine.origin == BUILT_IN for engine in available("tts"))
    (sentence,) = refused()
    assert sentence.startswith(f"engine {entry} of acme 1.0 is left out: ")
    assert why in sentence
