"""Creates the doors for devices and telephones."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from devices.api.door import DevicesDoor
from devices.fleet.directory import AnswerProfile, DeviceKind
from devices.fleet.ota import FirmwareFolder
from devices.willow.was.device_lookup import ConnectedDeviceLookup
from devices.willow.was.door import WasDoor
from devices.willow.wis.door import WillowDoor, WillowSettings
from devices.wyoming.connection import WyomingServices
from devices.wyoming.door import WyomingDoor
from devices.wyoming.tts import WyomingSynthesizer
from devices.xiaozhi.door import XiaozhiDoor
from media.files.upload_spool import UploadSpools
from media.webrtc.peer import PeerSettings
from server.compose.backend import Backend
from server.compose.devices import notice_check
from server.compose.esphome import EspHomeDoors, open_esphome_doors
from server.compose.telephone import TelephoneDoors, open_telephone_doors
from server.http.edge import ErrorBoundary
from server.version import product_version
from serving.workers.file_decoder import DEVICE_UPLOADS


def devices_door(backend: Backend, firmware: Mapping[DeviceKind, FirmwareFolder]) -> DevicesDoor:
    """Returns the API of the devices. `firmware`: folders by kind of device."""
    devices = backend.devices
    return DevicesDoor(
        devices.registry,
        devices.presence,
        devices.event_log,
        devices.announcements,
        profile_check(backend),
        notice_check(backend.session_services.engines),
        firmware,
    )


def profile_check(backend: Backend) -> Callable[[AnswerProfile], None]:
    """Returns the check of profiles, as `check_profile` wants it."""
    # A session may take an unknown name for `default`. A profile is stored, so a typo would stay.
    engines = replace(backend.session_services.engines, is_strict=True)
    return lambda profile: engines.check(profile.apply_to(backend.server_settings()))


def was_door(backend: Backend) -> WasDoor:
    """Returns the door for Willow's application protocol."""
    config, devices, services = backend.config, backend.devices, backend.session_services
    return WasDoor(
        devices.registry,
        devices.presence,
        devices.settings,
        backend.one_shot_responses,
        services.clock,
        services.metrics,
        ErrorBoundary(services.metrics),
        config.willow.as_settings(
            config.paths.state_dir,
            backend.server_settings,
            product_version(),
            trusts_this_machine=not config.server.needs_key_here,
        ),
        devices.wake_arbiter,
    )


def willow_door(
    backend: Backend, spools: UploadSpools, peer: PeerSettings, was: WasDoor
) -> WillowDoor:
    """Returns the door for Willow's inference protocol."""
    return WillowDoor(
        backend.session_services.engines,
        backend.transcriber,
        spools,
        backend.decoder.share(DEVICE_UPLOADS),
        backend.session_services.clock,
        ErrorBoundary(backend.session_services.metrics),
        backend.speech_files,
        backend.one_shot_responses,
        backend.sessions.key_sessions,
        WillowSettings(
            max_calls=backend.config.server.max_sessions,
            speaker_threshold=backend.config.willow.sv_threshold,
            peer=peer,
            pages=backend.config.willow.as_page_settings(
                trusts_this_machine=not backend.config.server.needs_key_here
            ),
        ),
        ConnectedDeviceLookup(was),
        backend.session_services.speakers,
        backend.own_voices,
    )


def xiaozhi_door(backend: Backend) -> XiaozhiDoor:
    """Returns the door for xiaozhi boards."""
    return XiaozhiDoor(
        backend.sessions,
        backend.devices.registry,
        backend.devices.presence,
        backend.devices.tools,
        backend.session_services.clock,
        backend.session_services.metrics,
        backend.config.xiaozhi.as_settings(backend.config.paths.state_dir, backend.server_settings),
        product_version(),
        backend.devices.speakers.volume_of,
        backend.devices.wake_arbiter,
    )


def wyoming_door(backend: Backend) -> WyomingDoor:
    """Returns the door for Wyoming."""
    engines, metrics = backend.session_services.engines, backend.session_services.metrics
    services = WyomingServices(
        engines,
        backend.transcriber,
        WyomingSynthesizer(engines, backend.speech_files, backend.languages),
        backend.one_shot_responses,
        backend.devices.wake_arbiter,
        product_version(),
    )
    # Wyoming is plain TCP and no HTTP proxy passes it on, so a key that is set because of a proxy
    # does not count here. Only require_key does.
    trusts_this_machine = not backend.config.server.require_key
    settings = backend.config.wyoming.as_settings(trusts_this_machine=trusts_this_machine)
    devices = backend.devices
    return WyomingDoor(
        services, metrics, ErrorBoundary(metrics), settings, devices.registry, devices.presence
    )


def esphome_doors(backend: Backend) -> EspHomeDoors | None:
    """Returns the doors for ESPHome satellites; None: they are off."""
    return open_esphome_doors(
        backend.config,
        backend.devices,
        backend.sessions,
        backend.session_services,
        backend.speech_files,
        backend.server_settings,
        backend.home,
    )


def telephone_doors(backend: Backend) -> TelephoneDoors:
    """Returns the doors for telephone calls."""
    services, people = backend.session_services, backend.devices.speakers
    return open_telephone_doors(
        backend.config,
        backend.sessions,
        services,
        backend.server_settings,
        people,
        backend.places,
    )
