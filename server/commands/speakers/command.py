"""Runs `earshot speakers ACTION` over the HTTP API of a running server."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from aiohttp import FormData

from bench.client.http import Address, http_session
from core.errors import ConfigError, NotFound
from server.commands.columns import align_columns
from server.commands.exit_codes import ExitCode
from server.commands.profile_values import profile_value
from server.commands.server_api import ServerApi, address_of, run_on_server
from server.commands.speakers.arguments import PROFILE_OPTIONS
from server.config import Config
from server.http.speakers import (
    LearnedVoice,
    LearningView,
    QualityView,
    SpeakerList,
    SpeakerView,
    TriedVoice,
)

PATH = "/v1/speakers"

HEADS = ("NAME", "ID", "RECORDINGS", "SPEECH", "SINCE", "TELEPHONE", "")

TEACH_AGAIN = "another model learned this voice: add recordings"
"Note for a person whom the present model does not know."


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action and prints the result. Raises EarshotError."""
    address = address_of(options, config, environ)
    return run_on_server(run_action(options, address))


def table(people: Sequence[SpeakerView]) -> str:
    """Formats people as a table with one line each."""
    if not people:
        return "the server knows no voices"
    return "\n".join(align_columns([HEADS, *map(_row, people)]))


async def run_action(options: argparse.Namespace, address: Address) -> None:
    """Runs one action against the server and prints the result. Raises EarshotError,
    CannotConnect."""
    async with http_session(address) as session:
        server = ServerApi(address, session)
        match options.action:
            case "list":
                body_bytes = await server.request("GET", PATH)
                people = msgspec.json.decode(body_bytes, type=SpeakerList).speakers
                _print(options, table(people), body_bytes)
            case "set":
                changes, numbers = _changes(options), _numbers(options)
                person = await _find(server, options.person)
                path, body_bytes = f"{PATH}/{person.id}", b""
                if changes:
                    body_bytes = await server.request("PATCH", path, changes)
                if numbers is not None:
                    path, wanted = f"{path}/telephone_numbers", {"telephone_numbers": numbers}
                    body_bytes = await server.request("PUT", path, wanted)
                _print(options, f"changed: {person.name}", body_bytes)
            case "allow":
                asked = {"minutes": options.minutes}
                body_bytes = await server.request("POST", f"{PATH}/learning", asked)
                until = msgspec.json.decode(body_bytes, type=LearningView).until
                _print(options, f"voices may be learned until {until:%H:%M}", body_bytes)
            case "remove":
                person = await _find(server, options.person)
                body_bytes = await server.request("DELETE", f"{PATH}/{person.id}")
                _print(options, f"forgotten: {person.name}", body_bytes or b"{}")
            case _:
                for file in options.files:
                    await _send(options, server, file)


def _changes(options: argparse.Namespace) -> dict[str, object]:
    """Returns the changes of a person that the options give. Raises ConfigError."""
    names = [name for name, _, _ in PROFILE_OPTIONS]
    given = {name: text for name in names if (text := getattr(options, name)) is not None}
    profile = {name: profile_value(name, text) for name, text in given.items()}
    if not profile and options.name is None and options.telephone is None:
        known = ", ".join(f"--{name.replace('_', '-')}" for name in ("name", *names, "telephone"))
        raise ConfigError(f"name at least one of {known}")
    changes: dict[str, object] = {"profile": profile} if profile else {}
    return changes if options.name is None else {**changes, "name": options.name}


def _numbers(options: argparse.Namespace) -> list[str] | None:
    """Returns the telephone numbers that the options give; None: they stay as they are."""
    text: str | None = options.telephone
    return None if text is None else [one.strip() for one in text.split(",") if one.strip()]


async def _send(options: argparse.Namespace, server: ServerApi, file: Path) -> None:
    """Sends one recording, to be learned or tried, and prints the answer."""
    form = FormData()
    if options.action == "add":
        form.add_field("name", options.name)
    form.add_field("file", _read(file), filename=file.name)
    if options.action == "add":
        body_bytes = await server.upload(PATH, form)
        learned = msgspec.json.decode(body_bytes, type=LearnedVoice)
        known = f"{learned.speaker.name} has {learned.speaker.samples} recordings"
        _print(options, f"{file.name}: learned, {_words(learned.quality)}; {known}", body_bytes)
        return
    body_bytes = await server.upload(f"{PATH}/try", form)
    tried = msgspec.json.decode(body_bytes, type=TriedVoice)
    heard = f"{tried.speaker.name} ({tried.speaker.score:.2f})" if tried.speaker else "a guest"
    _print(options, f"{file.name}: {heard}, {_words(tried.quality)}", body_bytes)


async def _find(server: ServerApi, identifier: str) -> SpeakerView:
    """Finds a person by id or name. Raises NotFound."""
    body_bytes = await server.request("GET", PATH)
    people = msgspec.json.decode(body_bytes, type=SpeakerList).speakers
    for person in people:
        if identifier in (person.id, person.name):
            return person
    known = ", ".join(person.name for person in people) or "nobody"
    raise NotFound(f"the server knows no {identifier!r}; it knows {known}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error


def _print(options: argparse.Namespace, text: str, body_bytes: bytes) -> None:
    print(body_bytes.decode() if options.json else text, flush=True)


def _words(quality: QualityView) -> str:
    return f"{quality.speech_ms / 1000:.1f} s of speech, {quality.snr_db:.0f} dB above the noise"


def _row(person: SpeakerView) -> tuple[str, ...]:
    since = f"{person.created:%Y-%m-%d}"
    speech = f"{person.speech_ms / 1000:.0f} s"
    numbers = ", ".join(person.telephone_numbers)
    note = TEACH_AGAIN if person.must_teach_again else ""
    return person.name, person.id, str(person.samples), speech, since, numbers, note
