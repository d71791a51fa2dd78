"""Keeps the last turn of each device and of the server's owner: words, speaker, latency.
Sessions of named keys belong to persons, so their turns are not kept."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.conversation.events import (
    ItemDone,
    OutputItemDone,
    SessionEvent,
    SpeakerRecognised,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.conversation.items import MessageItem
from core.ports import Clock, DeviceLocation


@dataclass(frozen=True, slots=True)
class HeardPerson:
    """The last time that a person's voice was heard."""

    at: datetime
    place: DeviceLocation


@dataclass(frozen=True, slots=True)
class LastWords:
    """The last words of one device, or of all clients that are no device."""

    heard: str = field(default="", repr=False)
    said: str = field(default="", repr=False)
    "The answer; empty until it is complete."
    person: str = field(default="", repr=False)
    "Name of the person who spoke; empty: a guest, or not to be told."


class LastTurns:
    """Collects events of sessions. Keeps nothing that is not to be published."""

    def __init__(self, clock: Clock, *, keeps_words: bool, keeps_people: bool) -> None:
        self._clock, self._keeps_words, self._keeps_people = clock, keeps_words, keeps_people
        self.latency_ms: float | None = None
        "Time from the end of speech to the first sound of the last answer."
        self._people: dict[str, HeardPerson] = {}
        self._words: dict[str, LastWords] = {}
        self._speakers: dict[str, tuple[str, str]] = {}
        "Device id -> id of the utterance whose speaker was known last, and the name."
        self._new_words: set[str] = set()
        self._next_change = asyncio.Event()

    @property
    def people(self) -> Mapping[str, HeardPerson]:
        """Last time of each person, by id."""
        return self._people

    def changed(self) -> asyncio.Event:
        """Returns the event that is set at the next change."""
        return self._next_change

    def take_words(self) -> Mapping[str, LastWords]:
        """Returns the words that are new since the last call, by device id; empty id: of clients
        that are no device."""
        new = {device_id: self._words[device_id] for device_id in self._new_words}
        self._new_words.clear()
        return new

    def forget_people(self, known: frozenset[str]) -> None:
        """Forgets everybody whose id is not `known`."""
        self._people = {key: heard for key, heard in self._people.items() if key in known}

    def forget_devices(self, known: frozenset[str]) -> None:
        """Forgets the words of devices whose id is not `known`."""
        kept = known | {""}
        self._words = {key: words for key, words in self._words.items() if key in kept}
        self._speakers = {key: last for key, last in self._speakers.items() if key in kept}
        self._new_words &= kept

    def take(self, place: DeviceLocation, event: SessionEvent) -> None:
        """Takes an event of a session at this place."""
        device_id = place.device_id
        match event:
            case SpeakerRecognised(item_id=item_id, speaker=speaker) if self._keeps_people:
                if speaker is not None:
                    self._speakers[device_id] = item_id, speaker.name
                    self._people[speaker.id] = HeardPerson(self._clock.wall(), place)
            case TranscriptionCompleted(item_id=item_id, transcript=text) if (
                text and self._keeps_words
            ):
                spoken_item, name = self._speakers.get(device_id, ("", ""))
                person = name if spoken_item == item_id else ""
                self._note_words(device_id, LastWords(text, person=person))
            case ItemDone(item=MessageItem(role="user", text=text)) if text and self._keeps_words:
                self._note_words(device_id, LastWords(text))  # written words
            case OutputItemDone(item=MessageItem(text=text)) if text and self._keeps_words:
                last = self._words.get(device_id, LastWords())
                self._note_words(device_id, LastWords(last.heard, text, last.person))
            case TurnTimeline(response_latency_ms=latency_ms) if latency_ms is not None:
                self.latency_ms = latency_ms
            case _:
                return
        self._note_change()

    def _note_words(self, device_id: str, words: LastWords) -> None:
        self._words[device_id] = words
        self._new_words.add(device_id)

    def _note_change(self) -> None:
        self._next_change.set()
        self._next_change = asyncio.Event()
