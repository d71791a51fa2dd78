"""Runs `earshot voices ACTION` over the HTTP API of a running server."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec
from aiohttp import FormData

from bench.client.http import Address, http_session
from core.errors import ConfigError
from pipeline.speech.own_voices import CONSENT, OWN_VOICES
from pipeline.speech.voices import VOICES_PATH
from server.commands.columns import align_columns
from server.commands.exit_codes import ExitCode
from server.commands.server_api import ServerApi, address_of, run_on_server
from server.config import Config
from web.openai.speech.own_voices import SAMPLE_FIELD, OwnVoiceView
from web.openai.speech.voice_cards import VoiceCard, VoiceList

HEADS = ("NAME", "ID", "LANGUAGE")


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action and prints the result. Raises EarshotError."""
    address = address_of(options, config, environ)
    return run_on_server(run_action(options, address))


async def run_action(options: argparse.Namespace, address: Address) -> None:
    """Runs one action against the server and prints the result. Raises EarshotError,
    CannotConnect."""
    async with http_session(address) as session:
        server = ServerApi(address, session)
        match options.action:
            case "list":
                body_bytes = await server.request("GET", VOICES_PATH)
                every = msgspec.json.decode(body_bytes, type=VoiceList).voices
                own = [voice for voice in every if voice.engine == OWN_VOICES]
                print(msgspec.json.encode(own).decode() if options.json else table(own), flush=True)
            case "delete":
                name = options.name.removeprefix(f"{OWN_VOICES}/")
                path = f"{VOICES_PATH}/{OWN_VOICES}/{quote(name, safe='')}"
                body_bytes = await server.request("DELETE", path)
                _print(options, f"deleted: {name}", body_bytes)
            case _:
                await _add(options, server)


def table(voices: list[VoiceCard]) -> str:
    """Formats voices as a table with one line each."""
    if not voices:
        return "the key has no voices of its own"
    rows = [(voice.name, voice.id, voice.language) for voice in voices]
    return "\n".join(align_columns([HEADS, *rows]))


async def _add(options: argparse.Namespace, server: ServerApi) -> None:
    if not options.consent:
        raise ConfigError(
            "the person whose voice it is has to agree to this text; then repeat the command with"
            f" --consent\n{CONSENT}"
        )
    form = FormData()
    for name, text in (
        ("name", options.name),
        ("consent", CONSENT),
        ("language", options.language),
    ):
        form.add_field(name, text)
    form.add_field(SAMPLE_FIELD, _read(options.file), filename=options.file.name)
    body_bytes = await server.upload(VOICES_PATH, form)
    made = msgspec.json.decode(body_bytes, type=OwnVoiceView)
    _print(options, f"made: {made.id}, for {made.language}", body_bytes)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error


def _print(options: argparse.Namespace, text: str, body_bytes: bytes) -> None:
    print(body_bytes.decode() if options.json else text, flush=True)
