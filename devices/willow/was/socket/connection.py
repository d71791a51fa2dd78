"""One connected Willow device: its state, and the messages that it is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from core.errors import RequestError
from core.queues import Outbox
from devices.fleet.directory import Device
from devices.fleet.presence import DeviceActivity, DeviceNotification, Presence
from devices.fleet.wake_arbiter import plain_wake_word
from devices.notices.notification_urls import AudioUrlPolicy
from devices.willow.was.socket.notifications import NotificationQueue
from firmware_protocol.willow.encode import one_line
from firmware_protocol.willow.messages import Notify, Restart, Scalar, ToDevice

MAX_UNSENT = 64
"Limit of unsent messages. A device that has so many is disconnected; it reconnects by itself."

MAX_SPOKEN_CHARS = 500
"""Limit of an announcement's text. In a URL, with three bytes per character, it comes close to the
4000 bytes that a message may have."""

MAX_SPEECH_URL_CHARS = 2000
"Limit of the URL at which a device fetches speech. A longer text is cut."

FirmwareUpdate = Callable[["WillowConnection", str], Awaitable[bool]]
"Function that makes a device fetch firmware; see `WasDoor.update`."

SendConfiguration = Callable[["WillowConnection"], Awaitable[None]]
"Function that sends a device its configuration, which makes it reboot."


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOrigin:
    """Facts about a socket that do not depend on the device's own claims."""

    address: str
    "IP address that it connects from; empty if a proxy forwarded the request."
    port: int
    base_url: str
    "Address of this server as the device uses it, `http://192.168.1.2:8502`."
    firmware: str
    "Version in its User-Agent, `Willow/0.4.2`; empty: it sent none."


class WillowConnection:
    """Implements `ConnectedDevice`. It exists while the device is approved."""

    def __init__(
        self,
        device: Device,
        hostname: str,
        origin: SocketOrigin,
        presence: Presence,
        notifications: NotificationQueue,
        audio_urls: AudioUrlPolicy,
        update: FirmwareUpdate,
        configure: SendConfiguration,
    ) -> None:
        self.device, self.hostname, self.origin = device, hostname, origin
        self.outbox: Outbox[ToDevice] = Outbox(MAX_UNSENT)
        self.notifications = notifications
        self.config: Mapping[str, Scalar] = {}
        "Configuration that it was sent, or would be sent."
        self.is_served = True
        "False: it was blocked or forgotten, so none of its requests are served any more."
        self.close_requested = asyncio.Event()
        "Set to close the connection from outside of its session."
        self._update, self._configure = update, configure
        self._presence, self._audio_urls = presence, audio_urls
        self._activity: DeviceActivity = "idle"
        self._timing: Mapping[str, float] | None = None

    @property
    def address(self) -> str:
        return self.origin.address

    @property
    def names(self) -> frozenset[str]:
        """Names that its requests may use for it, in lower case."""
        mac = self.device.hardware_id
        return frozenset({self.device.id.lower(), self.hostname.lower(), mac, mac.replace(":", "")})

    @property
    def is_multiwake(self) -> bool:
        """True if it reports its wake words."""
        return self.config.get("multiwake") is True

    @property
    def wake_word(self) -> str:
        """Wake word of its configuration; empty: none is set."""
        return str(self.config.get("wake_word", ""))

    @property
    def is_was_mode(self) -> bool:
        """True if it leaves commands to this server."""
        return self.config.get("was_mode") is True

    @property
    def activity(self) -> DeviceActivity:
        return self._activity

    @property
    def timing(self) -> Mapping[str, float] | None:
        return self._timing

    # `WakeContender`, used by the arbitration of wake words.

    connects_when_woken = False

    @property
    def contender_id(self) -> str:
        return self.device.id

    @property
    def contender_area(self) -> str:
        return self.device.area

    def listens_for(self, wake_word: str) -> bool:
        return self.is_multiwake and plain_wake_word(self.wake_word) == wake_word

    def set_activity(self, activity: DeviceActivity) -> None:
        """Records the activity, for presence."""
        if activity != self._activity:
            self._activity = activity
            self._presence.note_change()

    def note_turn(self, timing: Mapping[str, float]) -> None:
        """Records a turn with its marks: moment -> ms from the end of speech."""
        self._timing = timing
        self._presence.note_turn(self.device.id)

    def note_error(self, code: str) -> None:
        self._presence.note_error(self.device.id, code)

    def send(self, message: ToDevice) -> None:
        """Queues a message; ends the connection if too many wait."""
        self.outbox.put(message)
        if self.outbox.overflowed:
            self.close_requested.set()

    def say(self, text: str) -> bool:
        """Announces a text, such as that of a timer in its conversation."""
        return self._announce(DeviceNotification(text=text))

    async def notify(self, notice: DeviceNotification) -> bool:
        """Announces; see `ConnectedDevice`. If its sound may not be fetched, its text is spoken.

        Raises RequestError if there is no text either.
        """
        if notice.audio_url:
            try:
                await self._audio_urls.check(notice.audio_url, self.origin.base_url)
            except RequestError as error:
                if not notice.text:
                    raise
                self.note_error(error.code)
                notice = replace(notice, audio_url="")
        return self._announce(notice)

    async def restart(self) -> bool:
        self.send(Restart())
        return True

    async def update(self, firmware: str) -> bool:
        return await self._update(self, firmware)

    async def configure(self) -> None:
        """Sends the device its configuration, which makes it reboot."""
        await self._configure(self)

    async def close(self) -> None:
        self.close_requested.set()

    def spoken_url(self, text: str, voice: str = "", language: str = "") -> str:
        """Returns the URL at which it can fetch this text. voice, language: those of its profile if
        they are empty."""
        profile = self.device.profile
        params = {"speaker": voice or profile.voice, "language": language or profile.language}
        query = "".join(
            f"{name}={quote(value, safe='')}&" for name, value in params.items() if value
        )
        short = one_line(text)[:MAX_SPOKEN_CHARS]
        while (
            len(url := f"{self.origin.base_url}/api/tts?{query}text={quote(short)}")
            > MAX_SPEECH_URL_CHARS
        ):
            short = short[: len(short) * 9 // 10]
        return url

    def _announce(self, notice: DeviceNotification) -> bool:
        url = notice.audio_url or self.spoken_url(notice.text, notice.voice, notice.language)
        volume = self.device.profile.volume
        message = Notify(
            id=self.notifications.new_id(), text=notice.text or None, audio_url=url, volume=volume
        )
        return self.notifications.add(message)
