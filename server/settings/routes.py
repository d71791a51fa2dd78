"""HTTP routes of the settings: the form, a preview, a save, and the searches for language models
and Home Assistant.

They need the key like every other route, and accept no client secret and no key of a device.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web as aioweb

from core.errors import Conflict, RequestError
from core.http.json_body import decode_json_body
from core.http.routes import JSON, Route
from server.net.mdns import FoundHomeAssistant, find_home_assistants
from server.settings.checks import SettingValue
from server.settings.language_models import (
    LanguageModelAnswer,
    LanguageModelFinder,
    LanguageModelSearch,
    LanguageModelTest,
    test_language_model,
)
from server.settings.service import (
    SettingsPreview,
    SettingsReport,
    SettingsSaved,
    SettingsService,
)

MAX_CHANGES = 500
"Largest number of settings in one change; the form has less than a hundred."

_TAG = "settings"
_BODY = ("invalid_json", "invalid_value")
_FILE = ("settings_broken",)


class SettingsChange(msgspec.Struct, frozen=True):
    """Settings to change."""

    changes: Mapping[str, SettingValue]
    """Dotted name -> new value; null removes it from the file. A secret that is not named keeps its
    value."""
    etag: str = ""
    "Version of the file that the changes were made for; a preview needs none."


class HomeAssistantSearch(msgspec.Struct, frozen=True):
    """Addresses that announce a Home Assistant in the local network."""

    servers: tuple[FoundHomeAssistant, ...]


class SettingsDoor:
    """Handlers of the settings' routes. One change is written at a time."""

    def __init__(self, service: SettingsService, finder: LanguageModelFinder) -> None:
        self._service, self._finder = service, finder
        self._writing = asyncio.Lock()
        self._testing = asyncio.Lock()
        "One search or test at a time: each opens connections that a caller chose."

    async def show(self, _: aioweb.Request) -> aioweb.Response:
        return _json(await asyncio.to_thread(self._service.report))

    async def preview(self, request: aioweb.Request) -> aioweb.Response:
        change = _change(await request.read())
        return _json(await asyncio.to_thread(self._service.preview, change.changes))

    async def save(self, request: aioweb.Request) -> aioweb.Response:
        change = _change(await request.read())
        async with self._writing:
            # A write that has begun ends, even if the client leaves.
            saving = asyncio.to_thread(self._service.save, change.changes, change.etag)
            return _json(await asyncio.shield(saving))

    async def search(self, _: aioweb.Request) -> aioweb.Response:
        async with self._free():
            return _json(await self._finder.search())

    async def test(self, request: aioweb.Request) -> aioweb.Response:
        language_model = decode_json_body(await request.read(), LanguageModelTest)
        key = language_model.api_key
        if key is None:
            key = await asyncio.to_thread(self._service.stored_secret, language_model.base_url)
        async with self._free():
            return _json(await test_language_model(language_model, key))

    async def find_house(self, _: aioweb.Request) -> aioweb.Response:
        async with self._free():
            try:
                return _json(HomeAssistantSearch(await find_home_assistants()))
            except OSError as error:
                why = f"the local network cannot be asked by mDNS: {error}"
                raise RequestError(why, code="mdns_failed") from None

    def _free(self) -> asyncio.Lock:
        if self._testing.locked():
            raise Conflict("another search or test is under way", code="search_busy")
        return self._testing


def settings_routes(door: SettingsDoor) -> tuple[Route, ...]:
    """Returns the routes of the settings."""
    return (
        Route(
            "GET",
            "/v1/settings",
            door.show,
            "Show the settings that can be changed here, with their values, sources and meaning.",
            _TAG,
            responses={200: SettingsReport},
            error_codes=_FILE,
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/settings/preview",
            door.preview,
            "Show what a change of settings would write, without writing it.",
            _TAG,
            request=SettingsChange,
            responses={200: SettingsPreview},
            error_codes=(*_BODY, *_FILE),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/settings",
            door.save,
            "Write changed settings to the settings file.",
            _TAG,
            request=SettingsChange,
            responses={200: SettingsSaved},
            error_codes=(
                *_BODY,
                *_FILE,
                "invalid_settings",
                "settings_changed",
                "settings_read_only",
            ),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/settings/language-models/search",
            door.search,
            "Look for language model servers on the server's machine, at their usual ports.",
            _TAG,
            responses={200: LanguageModelSearch},
            error_codes=("search_busy",),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/settings/home-assistant/search",
            door.find_house,
            "Look for Home Assistant in the local network by mDNS.",
            _TAG,
            responses={200: HomeAssistantSearch},
            error_codes=("search_busy", "mdns_failed"),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/settings/language-models/test",
            door.test,
            "Let a language model answer one short question.",
            _TAG,
            request=LanguageModelTest,
            responses={200: LanguageModelAnswer},
            error_codes=(
                *_BODY,
                *_FILE,
                "bad_language_model",
                "search_busy",
                "language_model_failed",
            ),
            scope="manage",
        ),
    )


def _change(body: bytes) -> SettingsChange:
    change = decode_json_body(body, SettingsChange)
    if len(change.changes) > MAX_CHANGES:
        raise RequestError(f"more than {MAX_CHANGES} changes", code="invalid_value")
    return change


def _json(body: msgspec.Struct) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(body), content_type=JSON, headers={"Cache-Control": "no-store"}
    )
