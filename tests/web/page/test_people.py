"""People in the settings view of the page: a voice is learned, tried, renamed and forgotten, mostly
by the keyboard. The recordings are those of the browser's microphone; their sound is decoded."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Page, expect

from core.audio import ASR_RATE_HZ
from media.files.decode import decode_file
from tests.web.browser import Stub, serving

pytestmark = pytest.mark.browser


@dataclass
class Server(Stub):
    """The page's server with an empty form of settings. It knows the people that it was taught, and
    takes all sound for speech of the first of them."""

    folder: Path = Path()
    people: list[dict[str, Any]] = field(default_factory=list)
    tried: int = 0

    def app(self) -> aioweb.Application:
        app = super().app()
        app.router.add_get("/v1/settings", self.settings)
        app.router.add_get("/v1/speakers", self.list_people)
        app.router.add_post("/v1/speakers/learning", self.allow_learning)
        app.router.add_post("/v1/speakers", self.learn)
        app.router.add_post("/v1/speakers/try", self.compare)
        app.router.add_patch("/v1/speakers/{id}", self.rename)
        app.router.add_put("/v1/speakers/{id}/telephone_numbers", self.rename)
        app.router.add_delete("/v1/speakers/{id}", self.forget)
        return app

    async def settings(self, _: aioweb.Request) -> aioweb.Response:
        return aioweb.json_response({"file": "", "etag": "", "read_only": "", "fields": []})

    async def allow_learning(self, request: aioweb.Request) -> aioweb.Response:
        assert await request.json() == {"minutes": 5}
        return aioweb.json_response({"until": "2026-11-28T12:05:00Z"})

    async def list_people(self, _: aioweb.Request) -> aioweb.Response:
        return aioweb.json_response({"speakers": self.people})

    async def learn(self, request: aioweb.Request) -> aioweb.Response:
        name, quality = await self._heard(request)
        if quality["speech_ms"] < 500:
            error = {"code": "too_little_speech", "message": "too little speech"}
            return aioweb.json_response({"error": error}, status=400)
        known = [person for person in self.people if person["name"] == name]
        new = {"id": "spk_1", "name": name, "samples": 0, "profile": {"follow_voice": False}}
        new["telephone_numbers"] = []
        person: dict[str, Any] = known[0] if known else new
        person["samples"] += 1
        self.people = [person]
        return aioweb.json_response({"speaker": person, "quality": quality})

    async def compare(self, request: aioweb.Request) -> aioweb.Response:
        _, quality = await self._heard(request)
        self.tried += 1
        speaker = {**self.people[0], "score": 0.861} if self.people else None
        return aioweb.json_response({"speaker": speaker, "threshold": 0.72, "quality": quality})

    async def rename(self, request: aioweb.Request) -> aioweb.Response:
        self.people[0] |= await request.json()
        return aioweb.json_response(self.people[0])

    async def forget(self, request: aioweb.Request) -> aioweb.Response:
        self.people = [one for one in self.people if one["id"] != request.match_info["id"]]
        return aioweb.Response(status=204)

    async def _heard(self, request: aioweb.Request) -> tuple[str, dict[str, Any]]:
        form = await request.post()
        sound = form["file"]
        assert isinstance(sound, aioweb.FileField)
        file = self.folder / "voice"
        file.write_bytes(sound.file.read())
        pcm = await asyncio.to_thread(decode_file, file, ASR_RATE_HZ)
        speech_ms = 1000 * len(pcm) // ASR_RATE_HZ
        quality = {"speech_ms": speech_ms, "level_dbfs": -23.6, "snr_db": 31.2}
        return str(form.get("name", "")), quality


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(folder=tmp_path)
    with serving(server):
        yield server


def recorded(page: Page) -> None:
    """Records until the server has judged a part of the sound."""
    record, quality = page.get_by_test_id("person-record"), page.get_by_test_id("person-quality")
    record.focus()
    page.keyboard.press("Enter")
    expect(record).to_have_text("Stop")
    expect(quality).to_contain_text("level -24 dB · 31 dB above the noise")
    page.keyboard.press("Enter")


def test_a_voice_is_learned_tried_renamed_and_forgotten(
    settings_page: Page, server: Server
) -> None:
    page = settings_page
    people = page.get_by_test_id("people")
    people.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(people).to_contain_text("No voices yet.")
    page.get_by_test_id("person-name").focus()
    page.keyboard.type("Anna")
    page.keyboard.press("Enter")
    note, person = page.get_by_test_id("people-note"), page.get_by_test_id("person")
    for step in (1, 2, 3):
        expect(people).to_contain_text(f"Anna, please read aloud, {step} of 3:")
        expect(page.get_by_test_id("person-sentence")).not_to_be_empty()
        recorded(page)
    expect(note).to_have_text("Anna is known now. Try it.")
    expect(person).to_contain_text("3 recordings")
    assert server.tried >= 3  # the meter, while the voice was recorded
    page.get_by_test_id("person-try").click()
    recorded(page)
    expect(note).to_have_text("This is Anna (0.86).")
    page.get_by_test_id("person-cancel").click()
    page.get_by_test_id("person-rename").click()
    expect(page.get_by_test_id("person-rename-text")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    expect(person).to_have_attribute("data-name", "Ann")
    page.get_by_test_id("person-numbers").click()
    expect(page.get_by_test_id("person-numbers-text")).to_be_focused()
    page.keyboard.type("+4930123456, +4940123456")
    page.keyboard.press("Enter")
    expect(person).to_contain_text("3 recordings · +4930123456 · +4940123456")
    follow = page.get_by_test_id("person-follow")
    follow.click()
    expect(follow).to_have_text("Stop following this voice")
    follow.click()
    expect(follow).to_have_text("Follow this voice")
    page.get_by_test_id("person-delete").click()
    page.get_by_test_id("person-delete-sure").click()
    expect(person).to_have_count(0)
    assert server.people == []
    page.get_by_test_id("people-allow").click()
    expect(note).to_contain_text('For 5 minutes, say "Learn my voice"')
