"""Creates every door and gives it the shared services."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from core.http.routes import Route
from devices.api.door import DevicesDoor
from devices.api.routes import routes as device_routes
from devices.directory import DeviceKind, DeviceProfile
from devices.ota import FirmwareFolder
from devices.willow.was.device_lookup import ConnectedDeviceLookup
from devices.willow.was.door import WasDoor
from devices.willow.was.routes import was_routes
from devices.willow.wis.door import WillowDoor, WillowSettings
from devices.willow.wis.routes import routes as willow_routes
from devices.willow.wis.rtc.calls import call_settings
from devices.wyoming.connection import WyomingServices
from devices.wyoming.door import WyomingDoor
from devices.wyoming.tts import WyomingSynthesizer
from devices.xiaozhi.door import XiaozhiDoor
from devices.xiaozhi.routes import routes as xiaozhi_routes
from media.files.upload_spool import SpoolLimits, UploadSpools
from media.webrtc.call_path import describe_path, has_fast_path
from media.webrtc.peer import PeerSettings
from pipeline.conversation.conversation import Conversations
from pipeline.services import SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language_id import TextLanguageDetector
from pipeline.tools.home import DemoHome
from pipeline.tools.skills import HomeControls
from pipeline.transcription.recording import Transcriber
from server.compose.devices import DeviceServices
from server.compose.engines import Engines
from server.compose.plugins import ChosenPlugin, OpenedDoor, open_plugin_doors
from server.config import Config
from server.http.edge import ErrorBoundary
from server.version import product_version
from serving.workers.file_decoder import DEVICE_UPLOADS, UPLOADS, DecoderProcess
from signaling.ice_servers import IceDoor, ice_routes
from signaling.realtime.client_secrets import ClientSecretStore
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.realtime.routes import routes as realtime_routes
from signaling.whip.door import WhipDoor
from signaling.whip.publication import WhipSettings
from signaling.whip.routes import whip_routes
from web.openai.models import ModelCard
from web.openai.routes import routes as openai_routes
from web.openai.routes import speech_routes
from web.openai.speech.door import SpeechDoor
from web.openai.transcriptions.door import AudioDoor
from web.plugin_doors import DoorServices, RunsInBackground
from web.routes import PageDoor
from web.routes import routes as page_routes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Services that all doors share."""

    config: Config
    engines: Engines
    session_services: SessionServices
    home: DemoHome
    home_controls: HomeControls
    devices: DeviceServices
    initial_settings: SessionSettings
    "Settings with which a new session begins."
    sessions: Sessions
    conversations: Conversations
    transcriber: Transcriber
    speech_files: SpeechFiles
    languages: TextLanguageDetector
    one_shot_responses: OneShotResponses
    decoder: DecoderProcess


@dataclass(frozen=True, slots=True)
class Doors:
    """Routes of all doors, and the tasks that must run while the doors are open."""

    routes: tuple[Route, ...]
    willow_routes: tuple[Route, ...]
    was_routes: tuple[Route, ...]
    "Routes of Willow's application server, on a listener of its own."
    runs: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
    "Coroutine functions that run while the doors are open, by task name."
    wyoming: WyomingDoor
    plugins: Sequence[OpenedDoor]
    "Doors of other packages."


@dataclass(frozen=True, slots=True)
class ModelCards:
    """Model list of `/v1/models`: every recogniser, then the language model and the voice."""

    _engines: Engines
    _is_strict: bool
    "Setting `models.strict`: unknown model names are refused."

    def cards(self) -> tuple[ModelCard, ...]:
        """Lists the models."""
        others = (self._engines.choices[kind].name for kind in ("llm", "tts"))
        return tuple(ModelCard(id=name) for name in (*self._engines.asr, *others))

    def knows(self, name: str) -> bool:
        """Returns True if requests may use this model name."""
        return not self._is_strict or self._engines.asr.get(name) is not None


def open_doors(core: Backend, chosen: Sequence[ChosenPlugin] = ()) -> Doors:
    """Creates all doors. `chosen`: doors of other packages. Raises ConfigError for a door that does
    not open."""
    config, engines = core.config, core.engines
    plugins = open_plugin_doors(chosen, _services(core))
    ice = config.ice.as_settings()
    if not has_fast_path(ice):
        logger.warning("%s", describe_path(ice))
    peer = PeerSettings(ice=ice)
    spools = UploadSpools(SpoolLimits(max_bytes=config.server.max_upload_bytes))
    secrets = ClientSecretStore(
        core.session_services.clock, max_sessions=config.realtime.client_secret_sessions
    )
    realtime, whip = _realtime(core, peer, secrets), _whip(core, peer)
    was, xiaozhi = _was(core), _xiaozhi(core)
    images: Mapping[DeviceKind, FirmwareFolder] = {
        "willow": was.firmware,
        "xiaozhi": xiaozhi.images.folder,
    }
    devices = _devices(core, images)
    willow = _willow(core, spools, replace(call_settings(), ice=ice), was)
    return Doors(
        routes=(
            *page_routes(
                PageDoor(
                    core.home,
                    core.home_controls,
                    core.conversations.forget,
                    lambda: engines.report(config.language),
                )
            ),
            *realtime_routes(realtime),
            *ice_routes(IceDoor(ice), secrets.is_valid),
            *whip_routes(whip),
            *device_routes(devices),
            *xiaozhi_routes(xiaozhi),
            *openai_routes(_audio(core, spools)),
            *speech_routes(
                SpeechDoor(core.session_services.engines, core.speech_files, core.languages)
            ),
        ),
        willow_routes=willow_routes(willow),
        was_routes=was_routes(was, willow_routes(willow)),
        runs={
            "calls": realtime.run,
            "devices": devices.run,
            "files": core.decoder.run,
            "publications": whip.run,
            "willow-calls": willow.run,
            "willow-devices": was.run,
            **_background(plugins, ErrorBoundary(core.session_services.metrics)),
        },
        wyoming=_wyoming(core),
        plugins=plugins,
    )


def _services(core: Backend) -> DoorServices:
    return DoorServices(
        language=core.config.language,
        exchanges=core.one_shot_responses,
        transcriber=core.transcriber,
        reader=core.speech_files,
        sessions=core.sessions,
        session_settings=core.initial_settings,
        clock=core.session_services.clock,
        metrics=core.session_services.metrics,
    )


def _background(
    doors: Sequence[OpenedDoor], error_boundary: ErrorBoundary
) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    return {
        f"door-{door.name}": partial(_run, door.background, door.label, error_boundary)
        for door in doors
        if door.background is not None
    }


async def _run(background: RunsInBackground, label: str, error_boundary: ErrorBoundary) -> None:
    await error_boundary(background.run(), label)


def _audio(core: Backend, spools: UploadSpools) -> AudioDoor:
    return AudioDoor(
        core.transcriber,
        ModelCards(core.engines, core.config.models.strict),
        spools,
        core.decoder.share(UPLOADS),
    )


def _realtime(core: Backend, peer: PeerSettings, secrets: ClientSecretStore) -> RealtimeDoor:
    metrics = core.session_services.metrics
    return RealtimeDoor(
        core.sessions,
        metrics,
        ErrorBoundary(metrics),
        home=core.home,
        secrets=secrets,
        settings=RealtimeSettings(
            idle_timeout_s=core.config.server.idle_timeout_s,
            initial_settings=core.initial_settings,
            peer=peer,
        ),
    )


def _devices(core: Backend, images: Mapping[DeviceKind, FirmwareFolder]) -> DevicesDoor:
    devices, engines = core.devices, core.session_services.engines

    def check(profile: DeviceProfile) -> None:
        engines.check(profile.applied(core.initial_settings))

    return DevicesDoor(
        devices.registry, devices.presence, devices.event_log, devices.announcements, check, images
    )


def _whip(core: Backend, peer: PeerSettings) -> WhipDoor:
    metrics = core.session_services.metrics
    settings = WhipSettings(peer=peer, initial_settings=core.initial_settings)
    return WhipDoor(core.sessions, metrics, ErrorBoundary(metrics), settings)


def _was(core: Backend) -> WasDoor:
    config, devices, services = core.config, core.devices, core.session_services
    return WasDoor(
        devices.registry,
        devices.presence,
        devices.settings,
        core.one_shot_responses,
        services.clock,
        services.metrics,
        ErrorBoundary(services.metrics),
        config.willow.as_settings(
            config.paths.state_dir,
            core.initial_settings,
            product_version(),
            trusts_this_machine=not config.server.needs_key_here,
        ),
    )


def _willow(core: Backend, spools: UploadSpools, peer: PeerSettings, was: WasDoor) -> WillowDoor:
    return WillowDoor(
        core.session_services.engines,
        core.transcriber,
        spools,
        core.decoder.share(DEVICE_UPLOADS),
        core.session_services.clock,
        ErrorBoundary(core.session_services.metrics),
        core.speech_files,
        core.one_shot_responses,
        WillowSettings(
            max_calls=core.config.server.max_sessions,
            peer=peer,
            pages=core.config.willow.as_page_settings(
                trusts_this_machine=not core.config.server.needs_key_here
            ),
        ),
        ConnectedDeviceLookup(was),
    )


def _xiaozhi(core: Backend) -> XiaozhiDoor:
    return XiaozhiDoor(
        core.sessions,
        core.devices.registry,
        core.devices.presence,
        core.devices.tools,
        core.session_services.clock,
        core.session_services.metrics,
        core.config.xiaozhi.as_settings(core.config.paths.state_dir, core.initial_settings),
        product_version(),
    )


def _wyoming(core: Backend) -> WyomingDoor:
    engines, metrics = core.session_services.engines, core.session_services.metrics
    services = WyomingServices(
        engines,
        core.transcriber,
        WyomingSynthesizer(engines, core.speech_files, core.languages),
        core.one_shot_responses,
        product_version(),
    )
    # Wyoming is plain TCP and no HTTP proxy passes it on, so a key that is set because of a proxy
    # does not count here. Only require_key does.
    trusts_this_machine = not core.config.server.require_key
    settings = core.config.wyoming.as_settings(trusts_this_machine=trusts_this_machine)
    devices = core.devices
    return WyomingDoor(
        services, metrics, ErrorBoundary(metrics), settings, devices.registry, devices.presence
    )
