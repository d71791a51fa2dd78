"""The example packages in a running server: each one does its work."""

import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from server.compose.plugins import BUILT_IN_DOORS
from tests.plugins.packages import EXAMPLES, declare, install
from tests.server.process import Running, run, serving
from tests.shared import ROOT

pytestmark = pytest.mark.live

CONFIG = """
[asr]
engine = "beeps"
options = { word = "toot" }
[llm]
engine = "tests.plugins.which_bin_caller"
[tools.plugins.bins]
collected = { monday = "the blue one" }
[doors.ask]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with packages as pip installs them."""
    folder = tmp_path_factory.mktemp("site")
    for source in EXAMPLES.values():
        install(source, folder)
    (folder / "acme_broken.py").write_text("import nosuchlibrary\n")
    entries = {"engines": "tts.acme", "tools": "acme", "doors": "acme"}
    groups = {f"earshot.{kind}": {name: "acme_broken"} for kind, name in entries.items()}
    declare(folder, "acme-broken", groups)
    return folder


@pytest.fixture(scope="module")
def server(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("state")
    (folder / "earshot.toml").write_text(CONFIG)
    with serving(folder, settings={"PYTHONPATH": f"{site}:{ROOT}"}, recogniser={}) as running:
        yield running


def beeps(count: int) -> bytes:
    """Returns a WAV file of tones of 0.2 s with as much silence around each."""
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(3200) / 16_000)).astype("<i2")
    quiet = np.zeros(3200, dtype="<i2")
    with io.BytesIO() as file:
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 16_000, 0, "NONE", ""))
            sound.writeframes(np.concatenate([quiet, *[tone, quiet] * count]).tobytes())
        return file.getvalue()


def asked(url: str, body: bytes, content_type: str = "application/json") -> Any:
    request = Request(url, data=body, headers={"Content-Type": content_type})
    with urlopen(request, timeout=30) as response:
        return json.load(response)


def test_the_engine_transcribes_in_its_worker_process(server: Running) -> None:
    form = (
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nbeeps\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        + beeps(3)
        + b"\r\n--x--\r\n"
    )
    url = f"{server.url}/v1/audio/transcriptions"
    assert asked(url, form, "multipart/form-data; boundary=x")["text"] == "toot toot toot"
    said = "\n".join(server.said)
    assert "asr: beeps, earshot-example-engine 0.1.0 (it is configured)" in said


def test_the_door_answers_with_the_result_of_the_tool(server: Running) -> None:
    answer = asked(f"{server.url}/ask", b'{"question": "which bin is it?"}')
    assert answer == {"answer": '{"bin": "the blue one"}'}


def test_the_door_has_the_same_checks_as_our_own(server: Running) -> None:
    with pytest.raises(HTTPError) as refused:
        asked(f"{server.url}/ask", b'{"questions": []}')
    error = json.load(refused.value)["error"]
    assert (refused.value.code, error["code"]) == (400, "invalid_request")
    foreign = Request(f"{server.url}/ask", data=b"{}", headers={"Host": "elsewhere.example"})
    with pytest.raises(HTTPError) as shut:
        urlopen(foreign, timeout=30)
    assert shut.value.code in (401, 403)


def test_the_door_is_in_the_openapi_document(server: Running) -> None:
    with urlopen(f"{server.url}/openapi.json", timeout=30) as response:
        document = json.load(response)
    assert document["paths"]["/ask"]["post"]["tags"] == ["ask"]
    tags = {tag["name"] for tag in document["tags"]}
    others = {"esphome", "ingrain", "mcp", "telephone", "wyoming"}  # off, or on ports of their own
    assert tags - {"ask"} == set(BUILT_IN_DOORS) - others


def test_a_broken_package_is_named_and_does_not_stop_the_start(server: Running) -> None:
    said = "\n".join(server.said)
    why = "acme_broken cannot be imported: ModuleNotFoundError: No module named 'nosuchlibrary'"
    assert f"! tts engine acme of acme-broken 1.0 is left out: broken: {why}" in said
    assert f"! tool acme of acme-broken 1.0 cannot be used: {why}" in said
    assert f"! door acme of acme-broken 1.0 cannot be used: {why}" in said


def test_a_broken_package_that_is_configured_stops_the_start(site: Path, tmp_path: Path) -> None:
    (tmp_path / "earshot.toml").write_text("[doors.acme]")
    settings = {"PYTHONPATH": f"{site}:{ROOT}"}
    ended = run(tmp_path, "serve", "--port", "0", "--log-level", "error", settings=settings)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "acme-broken 1.0" in line
    assert "No module named 'nosuchlibrary'" in line


def test_doctor_names_the_package_of_each_plugin(site: Path, tmp_path: Path) -> None:
    (tmp_path / "earshot.toml").write_text(CONFIG)
    ended = run(tmp_path, "doctor", "--port", "0", settings={"PYTHONPATH": f"{site}:{ROOT}"})
    lines = ended.stdout.splitlines()
    assert "ok    asr: beeps (it is configured), earshot-example-engine 0.1.0" in lines
    assert "ok    tools of tools.plugins.bins (earshot-example-tool 0.1.0): which_bin" in lines
    assert "ok    door of doors.ask (earshot-example-door 0.1.0): opens with the server" in lines
    assert any(line.startswith("ok    vad: gated (") and ", built in" in line for line in lines)
    assert any(line.startswith("note  tts: acme of acme-broken 1.0 is broken: ") for line in lines)
    assert any(line.startswith("note  door acme of acme-broken 1.0 cannot") for line in lines)
    assert ended.returncode == 0, ended.stdout
