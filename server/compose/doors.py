"""Creates every door and gives it the shared services."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core.http.fetch_policy import HostAllowlist
from core.http.routes import Route
from devices.api.routes import routes as device_routes
from devices.esphome.adoption.adoption_api import adoption_routes
from devices.mqtt.client import MqttSources
from devices.telephone.audiosocket.door import AudioSocketDoor
from devices.willow.was.routes import was_routes
from devices.willow.wis.routes import routes as willow_routes
from devices.willow.wis.rtc.calls import call_settings
from devices.wyoming.door import WyomingDoor
from devices.xiaozhi.routes import routes as xiaozhi_routes
from media.files.upload_spool import SpoolLimits, UploadSpools
from media.webrtc.peer import PeerSettings
from media.webrtc.rtp.call_path import describe_path, has_fast_path
from server.compose.backend import Backend
from server.compose.device_doors import (
    devices_door,
    esphome_doors,
    profile_check,
    telephone_doors,
    was_door,
    willow_door,
    wyoming_door,
    xiaozhi_door,
)
from server.compose.devices import notice_check
from server.compose.esphome import EspHomeDoors
from server.compose.model_cards import ModelCards
from server.compose.mqtt import open_mqtt
from server.compose.plugins import ChosenPlugin, OpenedDoor, open_plugin_doors
from server.compose.speech_doors import speech_door_routes
from server.http.edge import ErrorBoundary
from server.http.kept_conversations import KeptConversationsDoor, kept_conversation_routes
from server.http.named_keys import NamedKeysDoor, named_key_routes
from server.http.speakers import SPEAKER_UPLOADS, SpeakersDoor, speaker_routes
from server.models.pulls import ModelPulls
from server.models.routes import FolderRemoval, ModelsDoor, model_routes
from server.version import product_version
from serving.workers.file_decoder import UPLOADS
from signaling.ice_servers import IceDoor, ice_routes
from signaling.live.door import LiveDoor
from signaling.live.routes import routes as live_routes
from signaling.realtime.client_secrets import ClientSecretStore
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.realtime.routes import routes as realtime_routes
from signaling.whip.door import WhipDoor
from signaling.whip.publication import WhipSettings
from signaling.whip.routes import whip_routes
from web.engines import EnginesReport, SessionStart
from web.images import RequestImages
from web.ingrain.door import IngrainDoor, IngrainPort
from web.ingrain.routes import ingrain_routes
from web.kserve.http import KserveHttpDoor, kserve_routes
from web.kserve.metrics import metrics_routes
from web.kserve.sequences import Sequences
from web.kserve.service import KserveService
from web.kserve.settings import KserveSettings
from web.kserve.speech import SpeechModels
from web.llama_cpp.door import LLAMA_CPP_TAG, LlamaCppDoor, llama_cpp_routes
from web.llama_cpp.state import LlamaStateDoor, llama_state_routes
from web.ollama.door import OllamaDoor
from web.ollama.models import OllamaModels, OllamaModelsDoor
from web.ollama.routes import ollama_routes
from web.openai.chat.door import ChatDoor
from web.openai.chat.models import ASSISTANT, ChatModels
from web.openai.codec.door import CODEC_UPLOADS, CodecDoor, codec_routes
from web.openai.limits import RequestLimits
from web.openai.responses.door import ResponsesDoor
from web.openai.routes import chat_routes, response_routes
from web.openai.routes import routes as openai_routes
from web.openai.text.door import TextDoor, text_routes
from web.openai.transcriptions.door import AudioDoor
from web.plugin_doors import DoorServices, RunsInBackground
from web.routes import PageDoor
from web.routes import routes as page_routes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doors:
    """Routes of all doors, and the tasks that must run while the doors are open."""

    routes: tuple[Route, ...]
    "Routes of all doors except Willow's."
    willow_routes: tuple[Route, ...]
    "Routes of Willow's inference server."
    was_routes: tuple[Route, ...]
    "Routes of Willow's application server, on a listener of its own."
    ingrain_routes: Callable[[IngrainPort], tuple[Route, ...]]
    "Returns the routes of one of the listeners for clients of Ingrain."
    kserve: "KserveDoors"
    "Doors for clients of KServe's protocol."
    background: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
    "Coroutine functions that run while the doors are open, by task name."
    wyoming: WyomingDoor
    "Door that speaks no HTTP, on a listener of its own."
    esphome: EspHomeDoors | None
    "Door for ESPHome satellites; None: it is off."
    audiosocket: AudioSocketDoor
    "Door for Asterisk's calls, as well on a listener of its own."
    plugins: Sequence[OpenedDoor]
    "Doors of other packages."
    limits: RequestLimits
    "Limits of the REST API, which finishes its answers before the server stops."


@dataclass(frozen=True, slots=True)
class KserveDoors:
    """Parts that the listeners for KServe's protocol share."""

    service: KserveService
    settings: KserveSettings
    sequences: Sequences

    def routes(self, *, has_own_port: bool) -> tuple[Route, ...]:
        """Returns the HTTP routes: of the main port, or of the port whose clients may need no
        key."""
        door = KserveHttpDoor(self.service, self.settings)
        return kserve_routes(door, self.settings, has_own_port=has_own_port)

    def metrics_routes(self) -> tuple[Route, ...]:
        """Returns the route of the port for Prometheus."""
        return metrics_routes(self.service.metrics, self.settings)


def open_doors(
    backend: Backend,
    door_plugins: Sequence[ChosenPlugin] = (),
    more_routes: Sequence[Route] = (),
) -> Doors:
    """Creates all doors. `door_plugins`: doors of other packages. `more_routes`: routes of doors
    that are open already. Raises ConfigError for a door that does not open."""
    config, engines = backend.config, backend.engines
    plugins = open_plugin_doors(door_plugins, _plugin_services(backend))
    ice = config.ice.as_settings()
    if not has_fast_path(ice):
        logger.warning("%s", describe_path(ice))
    peer_settings = PeerSettings(ice=ice)
    spools = UploadSpools(SpoolLimits(max_bytes=config.server.max_upload_bytes))
    secrets = _client_secrets(backend)
    named_keys = backend.devices.named_keys
    # The sessions end first: what a client secret of the key has opened is one of them.
    named_keys.on_revoked += [backend.sessions.end_all_of, secrets.forget_made_by]
    realtime, live = _realtime_doors(backend, peer_settings, secrets)
    whip = _whip_door(backend, peer_settings)
    models_dir = Path(config.paths.models_dir).expanduser().absolute()
    pulls = ModelPulls(
        models_dir, on_done=engines.registry.expire, catalogue=config.models.catalogue
    )
    cards = ModelCards(engines, config.models.strict)
    was, xiaozhi, telephone = was_door(backend), xiaozhi_door(backend), telephone_doors(backend)
    esphome = esphome_doors(backend)
    limits = config.limits.as_limits(backend.places)
    images = RequestImages(HostAllowlist(config.models.image_hosts))
    chat, kserve = _chat_door(backend, limits), _kserve_doors(backend)
    devices = devices_door(backend, {"willow": was.firmware, "xiaozhi": xiaozhi.images.folder})
    removal = FolderRemoval(engines.registry, models_dir, engines.kind_using)
    models = ModelsDoor(engines.registry, pulls, models_dir, cards, removal)
    willow = willow_door(backend, spools, replace(call_settings(), ice=ice), was)
    named_keys.on_revoked.append(willow.calls.end_all_of)
    return Doors(
        routes=(
            *_page_routes(backend),
            *realtime_routes(realtime),
            *live_routes(live),
            *ice_routes(IceDoor(ice), secrets.check),
            *whip_routes(whip),
            *device_routes(devices),
            *adoption_routes(esphome.adoption if esphome else None),
            *_person_routes(backend),
            *_speaker_routes(backend, spools),
            *xiaozhi_routes(xiaozhi),
            *telephone.routes,
            *openai_routes(_transcription_door(backend, cards, spools, limits)),
            *_chat_routes(backend, chat),
            *model_routes(models),
            *_text_routes(backend, chat, images, limits, pulls, removal),
            *kserve.routes(has_own_port=False),
            *speech_door_routes(backend, spools, limits),
            *_codec_routes(backend, spools, limits),
            *more_routes,
        ),
        willow_routes=willow_routes(willow),
        was_routes=was_routes(was, willow_routes(willow)),
        ingrain_routes=partial(_ingrain_routes, backend, models, images, removal, limits),
        kserve=kserve,
        background={
            "calls": realtime.run,
            "live-calls": live.run,
            "devices": devices.run,
            "downloads": pulls.run,
            "files": backend.decoder.run,
            "kserve-sequences": kserve.sequences.run,
            "publications": whip.run,
            "willow-calls": willow.run,
            "willow-devices": was.run,
            **_mqtt_tasks(backend),
            **_plugin_tasks(plugins, ErrorBoundary(backend.session_services.metrics)),
        },
        wyoming=wyoming_door(backend),
        esphome=esphome,
        audiosocket=telephone.audiosocket,
        limits=limits,
        plugins=plugins,
    )


def _client_secrets(backend: Backend) -> ClientSecretStore:
    most = backend.config.realtime.client_secret_sessions
    return ClientSecretStore(backend.session_services.clock, max_sessions=most)


def _page_routes(backend: Backend) -> tuple[Route, ...]:
    report = partial(_engines_report, backend)
    return page_routes(PageDoor(backend.home, backend.home_controls, report))


def _engines_report(backend: Backend) -> EnginesReport:
    report, settings = backend.engines.report(backend.config.language), backend.initial_settings()
    session = SessionStart(settings.language or "", settings.asr)
    return msgspec.structs.replace(report, session=session)


def _person_routes(backend: Backend) -> tuple[Route, ...]:
    """Returns the routes of the named keys, and of the conversations that belong to them."""
    count_sessions = backend.sessions.key_sessions.count_of
    keys = NamedKeysDoor(backend.devices.named_keys, count_sessions, profile_check(backend))
    kept = KeptConversationsDoor(backend.devices.kept_conversations, backend.conversations.forget)
    return (*kept_conversation_routes(kept), *named_key_routes(keys))


def _speaker_routes(backend: Backend, spools: UploadSpools) -> tuple[Route, ...]:
    """Returns the routes of the people whose voices the server knows."""
    decoder = backend.decoder.share(SPEAKER_UPLOADS)
    recognition, people = backend.session_services.speakers, backend.devices.speakers
    if recognition is None:
        return ()
    check = profile_check(backend)
    return speaker_routes(
        SpeakersDoor(people, recognition, spools, decoder, check, backend.devices.voice_enrolment)
    )


def _codec_routes(
    backend: Backend, spools: UploadSpools, limits: RequestLimits
) -> tuple[Route, ...]:
    """Returns the routes of codecs."""
    decoder = backend.decoder.share(CODEC_UPLOADS)
    return codec_routes(CodecDoor(backend.engines.codecs, spools, decoder, limits))


def _plugin_services(backend: Backend) -> DoorServices:
    return DoorServices(
        language=backend.config.language,
        exchanges=backend.one_shot_responses,
        transcriber=backend.transcriber,
        reader=backend.speech_files,
        sessions=backend.sessions,
        session_settings=backend.server_settings(),
        clock=backend.session_services.clock,
        metrics=backend.session_services.metrics,
    )


def _plugin_tasks(
    doors: Sequence[OpenedDoor], error_boundary: ErrorBoundary
) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    return {
        f"door-{door.name}": partial(_run_in_boundary, door.background, door.label, error_boundary)
        for door in doors
        if door.background is not None
    }


def _mqtt_tasks(backend: Backend) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    """Returns the task of the MQTT client, if there is one. Raises ConfigError."""
    devices, services = backend.devices, backend.session_services
    if devices.last_turns is None:
        return {}
    sources = MqttSources(
        registry=devices.registry,
        presence=devices.presence,
        announcements=devices.announcements,
        sessions=backend.sessions,
        people=devices.speakers,
        last_turns=devices.last_turns,
        version=product_version(),
        check_notice=notice_check(services.engines),
    )
    client = open_mqtt(backend.config.mqtt, sources, services.clock, services.metrics)
    return {"mqtt": partial(_run_in_boundary, client, "mqtt", ErrorBoundary(services.metrics))}


async def _run_in_boundary(
    background: RunsInBackground, label: str, error_boundary: ErrorBoundary
) -> None:
    await error_boundary(background.run(), label)


def _transcription_door(
    backend: Backend, cards: ModelCards, spools: UploadSpools, limits: RequestLimits
) -> AudioDoor:
    decoder = backend.decoder.share(UPLOADS)
    return AudioDoor(
        backend.transcriber,
        cards,
        spools,
        decoder,
        limits.transcriptions,
        backend.engines.remote,
        backend.session_services.speakers,
    )


def _chat_door(backend: Backend, limits: RequestLimits) -> ChatDoor:
    services = backend.session_services
    models = ChatModels(services, backend.one_shot_responses)
    return ChatDoor(models, services.clock, limits.chat, backend.engines.remote)


def _chat_routes(backend: Backend, chat: ChatDoor) -> tuple[Route, ...]:
    """Returns the routes of the doors that share the chat door's models and limits."""
    clock = backend.session_services.clock
    return (
        *chat_routes(chat),
        *response_routes(ResponsesDoor(chat, chat.models, clock)),
    )


def _text_routes(
    backend: Backend,
    chat: ChatDoor,
    images: RequestImages,
    limits: RequestLimits,
    pulls: ModelPulls,
    removal: FolderRemoval,
) -> tuple[Route, ...]:
    """Returns the routes of embeddings and reranking, llama.cpp's and Ollama's."""
    engines = backend.engines
    texts = TextDoor(
        engines.embedders, engines.rerankers, engines.clips, engines.remote, images, limits
    )
    names = (ASSISTANT, engines.choices["llm"].name, *engines.remote.language_models())
    models = OllamaModels(
        lambda: names,
        engines.embedders,
        engines.rerankers,
        engines.remote,
        texts,
        pulls,
        removal,
    )
    ollama = OllamaDoor(chat, backend.session_services.clock, product_version())
    return (
        *text_routes(texts),
        *llama_cpp_routes(LlamaCppDoor(texts, chat)),
        *llama_state_routes(LlamaStateDoor(chat.models, product_version()), LLAMA_CPP_TAG),
        *ollama_routes(ollama, OllamaModelsDoor(models)),
    )


def _ingrain_routes(
    backend: Backend,
    models: ModelsDoor,
    images: RequestImages,
    removal: FolderRemoval,
    limits: RequestLimits,
    port: IngrainPort,
) -> tuple[Route, ...]:
    config, engines = backend.config, backend.engines
    settings = config.ingrain.as_settings(trusts_this_machine=not config.server.needs_key_here)
    door = IngrainDoor(
        engines.embedders,
        engines.clips,
        engines.remote,
        images,
        engines.registry,
        settings,
        models.download,
        removal.remove,
        limits.embeddings,
        port,
    )
    return ingrain_routes(door, settings, port)


def _kserve_doors(backend: Backend) -> KserveDoors:
    engines, services, config = backend.engines, backend.session_services, backend.config
    sequences = Sequences(backend.transcriber, ErrorBoundary(services.metrics))
    service = KserveService(
        SpeechModels(backend.transcriber, sequences, services.engines.recogniser),
        engines.registry,
        engines.remote,
        services.clock,
        engines.is_loaded,
        product_version(),
    )
    trusts_this_machine = not config.server.needs_key_here
    settings = config.kserve.as_settings(trusts_this_machine=trusts_this_machine)
    return KserveDoors(service, settings, sequences)


def _realtime_doors(
    backend: Backend, peer: PeerSettings, secrets: ClientSecretStore
) -> tuple[RealtimeDoor, LiveDoor]:
    """Returns the doors for OpenAI's two protocols of live sessions. The same settings hold."""
    services, sessions = backend.session_services, backend.sessions
    metrics, clock = services.metrics, services.clock
    guard = ErrorBoundary(metrics)
    settings = RealtimeSettings(
        idle_timeout_s=backend.config.server.idle_timeout_s,
        initial_settings=backend.initial_settings,
        peer=peer,
    )
    realtime = RealtimeDoor(
        sessions, metrics, guard, home=backend.home, secrets=secrets, settings=settings
    )
    live = LiveDoor(sessions, metrics, guard, clock, secrets=secrets, settings=settings)
    return realtime, live


def _whip_door(backend: Backend, peer: PeerSettings) -> WhipDoor:
    metrics = backend.session_services.metrics
    settings = WhipSettings(peer=peer, initial_settings=backend.initial_settings)
    return WhipDoor(backend.sessions, metrics, ErrorBoundary(metrics), settings)
