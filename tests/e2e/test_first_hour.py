"""A person's first hour on the page: from the first spoken words and an empty state to a changed
voice, a language model that answers, and a device with a name. The server and vLLM are real."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from engines.llm import vllm
from engines.llm.vllm.command_line import command, variables
from engines.llm.vllm.environment import read_environment
from engines.runtime.external_server.program import reserve_port
from tests.clients.programs import npm_program
from tests.e2e.a_person import Hands, Person, Stations
from tests.e2e.recorded_microphone import RATE_HZ, write_clip
from tests.engines.llm.vllm.installation import installed, tiny_llama
from tests.server.process import serving
from tests.shared import ROOT
from tests.speech import say
from tests.web.browser import chromium

pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.late]

START_S = 600
ANSWER_MS = 120_000
"Beside other tests, a processor takes its time for vLLM's tokens."

HOST, KEY = "127.0.0.1", "key-of-a-person"
WIDE, PHONE = (1280, 800), (390, 844)
MODEL = "llm.options.model.options"
SCREENSHOTS = os.environ.get("EARSHOT_SCREENSHOTS", "")
"A folder that keeps what the page looked like at each station."
PICTURE = ROOT / "docs" / "page.png"
"The picture of the README. Written anew when EARSHOT_WRITE_SCREENSHOT=1."
LEAD_MS, TAIL_MS = 1500, 20_000
"Silence before and after the spoken words: the call connects, the answer is heard."


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """The address of a vLLM that someone else started, with a tiny model and a key."""
    settings = vllm.Settings(
        model=str(tiny_llama()),
        environment=str(installed()),
        cpu_cache_gb=1,
        tool_parser="hermes",  # without it, vLLM refuses requests with tools
    )
    environment = read_environment(Path(settings.environment))
    assert environment is not None
    with reserve_port("llm", "vllm", HOST, 0) as port:
        process = subprocess.Popen(
            command(settings, environment, port),
            env={**os.environ, **variables(settings, environment, KEY)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(f"http://{HOST}:{port}/health", process)
            yield f"http://{HOST}:{port}/v1"
        finally:
            process.terminate()
            process.wait(START_S)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(START_S):
        assert process.poll() is None, "vLLM did not start"
        try:
            with urlopen(url, timeout=5):
                return
        except URLError:
            time.sleep(1)  # it tells nobody when it is ready
    raise AssertionError(f"{url} does not answer")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """axe-core's script."""
    folder = npm_program("axe", tmp_path_factory.mktemp("axe"))
    return folder / "node_modules" / "axe-core" / "axe.min.js"


@contextmanager
def browsing(size: tuple[int, int], axe: Path, *flags: str) -> Iterator[Page]:
    """Starts a browser with these flags, and opens a tab of this size that has axe-core."""
    viewport: Any = dict(zip(("width", "height"), size, strict=True))
    with chromium(*flags) as browser:
        context = browser.new_context(locale="en-GB", viewport=viewport, permissions=["microphone"])
        context.add_init_script(path=axe)
        page = context.new_page()
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        yield page
        context.close()


@pytest.mark.alone  # the words have to reach the server without gaps
def test_the_first_spoken_words_switch_a_lamp(axe: Path, tmp_path: Path) -> None:
    words = say("turn on the living room lamp", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=TAIL_MS)
    clip = write_clip(tmp_path / "microphone.wav", words)
    flags = (
        f"--use-file-for-fake-audio-capture={clip}%noloop",
        "--autoplay-policy=no-user-gesture-required",
    )
    with serving(tmp_path) as server, browsing(WIDE, axe, *flags) as page:
        person = Person(page, "mouse")
        page.goto(server.url)
        person.press(page.get_by_test_id("mic"))
        turn = page.get_by_test_id("turn").first
        expect(turn.get_by_test_id("reply")).to_contain_text("Turned on the living room lamp")
        lamp = page.get_by_test_id("entity-light.living_room_lamp")
        expect(lamp).to_have_attribute("data-state", "on")
        expect(turn.get_by_test_id("latency")).to_contain_text("ms")
        expect(page.locator("html")).to_have_attribute("data-state", "listening")
        if os.environ.get("EARSHOT_WRITE_SCREENSHOT"):
            page.screenshot(path=PICTURE)
        Stations(page, Path(SCREENSHOTS or tmp_path), "first_words").check("spoken")


# A minute each: the other two pairs show nothing that these do not.
@pytest.mark.parametrize(
    ("hands", "size"),
    [("mouse", WIDE), ("keyboard", PHONE)],
    ids=["mouse, wide", "keyboard, phone"],
)
def test_a_person_sets_up_a_voice_a_language_model_and_a_device(
    axe: Path, model_url: str, tmp_path: Path, hands: Hands, size: tuple[int, int]
) -> None:
    with browsing(size, axe) as page:
        person = Person(page, hands)
        stations = Stations(page, Path(SCREENSHOTS or tmp_path), f"{size[0]}_{hands}")
        with serving(tmp_path) as server:
            page.goto(server.url)
            expect(page.get_by_test_id("settings-open")).to_be_visible()
            stations.check("empty")
            choose_voice_and_model(person, stations, model_url)
        file = (tmp_path / "earshot.toml").read_text()
        assert 'voice = "espeak/en-gb"' in file
        assert f'base_url = "{model_url}"' in file
        with serving(tmp_path) as server:  # the settings say that it is needed
            page.goto(server.url)
            ask_the_model(person, stations)
            name_a_device(person, stations, server.url)


def choose_voice_and_model(person: Person, stations: Stations, model_url: str) -> None:
    page = person.page
    person.press(page.get_by_test_id("settings-open"))
    voice = page.get_by_test_id("setting assistant.voice")
    expect(voice).to_be_visible()
    stations.check("settings")
    person.choose(voice, "English: en-gb (espeak, male)")
    person.press(page.get_by_test_id("voice-sample"))
    person.choose(
        page.get_by_test_id("setting llm.engine"), "Commands for the home, then a language model"
    )
    person.write(page.get_by_test_id(f"setting {MODEL}.base_url"), model_url)
    person.write(page.get_by_test_id(f"setting {MODEL}.api_key"), KEY)
    person.press(page.get_by_test_id("model-test"))
    answered = page.get_by_text(re.compile(r"^“.*” \(.* ms\)$", re.DOTALL))
    expect(answered).to_be_visible(timeout=ANSWER_MS)
    stations.check("model")
    person.press(page.get_by_test_id("settings-send"))
    expect(page.get_by_test_id("settings-diff")).to_contain_text("hybrid")
    stations.check("review")
    person.press(page.get_by_test_id("settings-send"))
    expect(page.get_by_test_id("settings-note")).to_contain_text("started again")
    stations.check("saved")
    person.press(page.get_by_test_id("settings-close"))
    expect(page.get_by_test_id("settings-open")).to_be_focused()


def ask_the_model(person: Person, stations: Stations) -> None:
    page = person.page
    person.write(page.get_by_test_id("text-input"), "tell me a story")
    person.press(page.get_by_test_id("send"))
    turn = page.get_by_test_id("turn").first
    expect(turn).to_have_attribute("data-status", "answered", timeout=ANSWER_MS)
    assert turn.get_by_test_id("reply").inner_text()
    stations.check("answered")


def name_a_device(person: Person, stations: Stations, url: str) -> None:
    page = person.page
    board = {"Device-Id": "a1:b2:c3:d4:e5:f6", "Client-Id": "5c2f"}
    with urlopen(Request(f"{url}/xiaozhi/ota/", b"{}", board), timeout=20) as answer:
        assert json.load(answer)["websocket"]["token"]
    person.press(page.get_by_test_id("devices-open"))
    expect(page.get_by_test_id("device")).to_be_visible()
    stations.check("devices")
    person.press(page.get_by_test_id("device-edit"))
    person.write(page.get_by_test_id("edit-name"), "Kitchen speaker")
    person.write(page.get_by_test_id("edit-area"), "Kitchen")
    stations.check("edited")
    person.press(page.get_by_test_id("edit-save"))
    expect(page.get_by_role("heading", name="Kitchen speaker")).to_be_visible()
    stations.check("renamed")
