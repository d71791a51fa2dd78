"""The telephone doors behind scripted engines, in virtual time, and the sound of a caller."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

import numpy as np

from core.audio import Pcm
from core.errors import expected_failure
from devices.fleet.directory import CallingPerson
from devices.telephone.calls import TelephoneCalls
from devices.telephone.settings import TelephoneSettings
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.tools.toolbox import Toolbox
from tests.devices.xiaozhi.servers import SineTts, ToneAsr
from tests.devices.xiaozhi.simulated_board import WORDS
from tests.pipeline.fakes import Adder, Counts, EchoLlm, LoopClock, LoudVads

FRAME_SAMPLES = 160
LOUD = 3000
"Level above which a frame of the answer is sound and no silence."


def speech(*words: str) -> list[Pcm]:
    """Returns frames of 20 ms at 8 kHz: a tone of 240 ms for each word."""
    at = np.arange(12 * FRAME_SAMPLES)
    tones = [8000 * np.sin(2 * math.pi * WORDS[word] * at / 8000) for word in words]
    return [*np.concatenate(tones).astype(np.int16).reshape(-1, FRAME_SAMPLES)]


@dataclass
class TelephoneScene:
    tts: SineTts = field(default_factory=lambda: SineTts(300))
    llm: EchoLlm = field(default_factory=lambda: EchoLlm(0.001))
    settings: TelephoneSettings = field(
        default_factory=lambda: TelephoneSettings(networks=(ip_network("127.0.0.0/8"),))
    )
    max_sessions: int = 8
    people: dict[str, CallingPerson] = field(default_factory=dict[str, CallingPerson])
    "People of the house by their numbers."
    ended: list[str] = field(default_factory=list)
    "Codes of the errors that ended connections."

    def __post_init__(self) -> None:
        self._open, self._is_left = 0, asyncio.Event()
        self._is_left.set()
        self.asr = ToneAsr(0.01, languages=("en", "de"))
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr},
            llm={"default": self.llm},
            tts={"default": self.tts},
        )
        self.metrics, self.conversations = Counts(), Conversations()
        services = SessionServices(
            engines,
            Toolbox([Adder()], self.metrics),
            LoopClock(),
            self.metrics,
            apply_profile=self._apply_profile,
        )
        self.sessions = Sessions(services, self.conversations, self.max_sessions)
        self.calls = TelephoneCalls(
            self.sessions,
            LoopClock(),
            self.metrics,
            self.settings,
            self.people.get,
            lambda settings: settings.language in ("en", "de"),
        )

    def _apply_profile(self, person_id: str, settings: SessionSettings) -> SessionSettings:
        return replace(settings, instructions=f"Instructions of {person_id}.")

    def with_settings(self, **values: Any) -> "TelephoneScene":
        return replace(self, settings=replace(self.settings, **values))

    async def guard(self, work: Awaitable[None], name: str) -> None:
        self._open += 1
        self._is_left.clear()
        try:
            await work
        except Exception as error:
            expected = expected_failure(error)
            if expected is None:
                raise
            self.ended.append(expected.code)
        finally:
            self._open -= 1
            if not self._open:
                self._is_left.set()

    async def left(self) -> None:
        """Waits until no call is open."""
        await self._is_left.wait()

    def asked(self) -> list[str]:
        """Returns what the user said, as the language model saw it last."""
        return [message.text for message in self.llm.asked[-1] if message.role == "user"]
