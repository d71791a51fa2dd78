"""The questions of `earshot setup`, in a terminal."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from getpass import getpass

import numpy as np

from bench.talk.sound_card import play_to_end
from core.audio import AudioFrame
from core.errors import ConfigError, EarshotError, EngineError, RequestError
from engines.base.wake import wake_words
from pipeline.speech.voices import choose_voice
from server.commands.setup.engines import InstalledEngines
from server.config import Config
from server.net.addresses import is_loopback
from server.settings.checks import SettingValue, model_options
from server.settings.language_models import (
    LanguageModelFinder,
    LanguageModelTest,
    test_language_model,
)

MAX_VOICES = 20
"Voices of a language that are listed; eSpeak and Kokoro have more, which can be typed."

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - only if the user wants other machines to connect
NO_MODEL = "commands for the home only"
OTHER = "another address"


class Terminal:
    """Asks on standard error and reads standard input, so that `--json` has standard output to
    itself. Raises ConfigError when the input ends."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def ask(self, question: str, default: str = "") -> str:
        """Returns the answer; `default` for an empty one."""
        print(
            f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True
        )
        line = sys.stdin.readline()
        if not line:
            raise ConfigError("the answers have ended; nothing was written")
        return line.strip() or default

    def secret(self, question: str) -> str:
        """Returns an answer that is not shown while it is typed."""
        return getpass(f"{question}: ") if sys.stdin.isatty() else self.ask(question)

    def confirm(self, question: str, *, default: bool = True) -> bool:
        while True:
            answer = self.ask(f"{question} {'[Y/n]' if default else '[y/N]'}").lower()
            if answer in ("", "y", "yes", "n", "no"):
                return default if not answer else answer.startswith("y")

    def choose(self, question: str, offers: Sequence[str], default: str) -> str:
        """Returns one of the offers, by its number or its name, or any other text that is typed."""
        for number, offer in enumerate(offers, 1):
            self.say(f"  {number:2}  {offer}")
        answer = self.ask(question, default)
        is_number = answer.isdecimal() and 0 < int(answer) <= len(offers)
        return offers[int(answer) - 1] if is_number else answer


def ask_settings(terminal: Terminal, config: Config) -> dict[str, SettingValue]:
    """Asks all questions. Returns only what differs from the configuration."""
    answers: dict[str, SettingValue] = {}
    language = terminal.ask("Language of the conversation (en, de, fr, ...)", config.language)
    answers["language"] = language
    engines = InstalledEngines(config)
    voices = [name for tts in engines.voices.values() for name in tts.info.voices.get(language, ())]
    if len(voices) > 1:
        offers = ["default", *dict.fromkeys(voices)][:MAX_VOICES]
        answers["assistant.voice"] = terminal.choose("Voice", offers, config.assistant.voice)
    voice = str(answers.get("assistant.voice", config.assistant.voice))
    speak = partial(_speak, terminal, engines, language, voice)
    answers |= _ask_model(terminal, config, language, speak)
    answers |= _ask_wake_word(terminal, config, engines)
    answers |= _ask_access(terminal, config)
    present = {
        "language": config.language,
        "assistant.voice": config.assistant.voice,
        "assistant.wake_word": config.assistant.wake_word,
        "llm.engine": config.llm.engine,
        "server.host": config.server.host,
        "server.tls": config.server.tls,
    }
    return {key: value for key, value in answers.items() if present.get(key, ...) != value}


def _ask_model(
    terminal: Terminal, config: Config, language: str, speak: Callable[[str], None]
) -> dict[str, SettingValue]:
    """Asks for the language model. What is there already is kept by default. `speak`: speaks the
    test answer."""
    present = model_options(config)
    if present is not None:
        kept = f"{present.get('model', 'auto')} at {present.get('base_url')}"
        if terminal.confirm(f"Language model: {kept}. Keep it?"):
            return {}
    found: dict[str, tuple[str, str]] = {}
    if terminal.confirm("Look for language models on this machine (Ollama, llama.cpp, ...)?"):
        search = LanguageModelFinder({config.server.port}).search()
        for server in asyncio.run(search).servers:
            for model in server.models or ("auto",):
                found[f"{server.name}: {model}"] = (server.base_url, model)
        if not found:
            terminal.say("  none answers")
    default = next(iter(found), NO_MODEL)
    chosen = terminal.choose("Language model", [*found, OTHER, NO_MODEL], default)
    if chosen == NO_MODEL:
        return {} if present is None else {"llm.engine": "auto"}
    if chosen in found:
        (address, model), key = found[chosen], ""
    else:
        address = (
            chosen if chosen != OTHER else terminal.ask("Address", "http://127.0.0.1:11434/v1")
        )
        model = terminal.ask("Model", "auto")
        key = terminal.secret("Key (Enter: none)")
    if terminal.confirm("Ask it for a test answer?"):
        _try_model(terminal, LanguageModelTest(address, model, language=language), key, speak)
    options = "llm.options.model.options"
    answers: dict[str, SettingValue] = {
        "llm.engine": "hybrid",
        f"{options}.base_url": address,
        f"{options}.model": model,
    }
    if config.llm.engine == "openai":
        answers = {key.replace("options.model.options", "options"): v for key, v in answers.items()}
        answers["llm.engine"], options = "openai", "llm.options"
    # A key that was typed for another address must not stay.
    had_key = present is not None and bool(present.get("api_key"))
    return answers | ({f"{options}.api_key": key or None} if key or had_key else {})


def _try_model(
    terminal: Terminal, asked: LanguageModelTest, key: str, speak: Callable[[str], None]
) -> None:
    try:
        answer = asyncio.run(test_language_model(asked, key))
    except RequestError as error:
        terminal.say(f"  no answer: {error}")
    else:
        terminal.say(f"  {answer.model} says after {answer.took_ms} ms: {answer.text}")
        speak(answer.text)


def _speak(
    terminal: Terminal, engines: InstalledEngines, language: str, voice: str, text: str
) -> None:
    """Speaks a text on the loudspeaker of this machine. A machine without one only shows it."""
    try:
        frames = asyncio.run(_spoken(engines, language, voice, text))
        play_to_end(np.concatenate([frame.pcm for frame in frames]), frames[0].rate_hz)
    except EarshotError as error:
        terminal.say(f"  It is not spoken: {error}")


async def _spoken(
    engines: InstalledEngines, language: str, voice: str, text: str
) -> list[AudioFrame]:
    """Returns the sound of a text. Raises RequestError or EngineError."""
    choice = choose_voice(engines.voices, language, voice)

    async def texts() -> AsyncIterator[str]:
        yield text

    frames = choice.tts.speak(texts(), language=language, voice=choice.voice)
    async with aclosing(frames):
        sound = [frame async for frame in frames]
    if not sound:
        raise EngineError("tts", choice.engine, "it has no sound for this text")
    return sound


def _ask_wake_word(
    terminal: Terminal, config: Config, engines: InstalledEngines
) -> dict[str, SettingValue]:
    try:
        words = [word.name for word in wake_words(engines.wake)]
    except EarshotError:
        return {}
    if not words:
        return {}
    default = config.assistant.wake_word or "none"
    chosen = terminal.choose("Wake word", ["none", *words], default)
    return {"assistant.wake_word": "" if chosen == "none" else chosen}


def _ask_access(terminal: Terminal, config: Config) -> dict[str, SettingValue]:
    """Asks whether other machines may connect. They need the key, and browsers need HTTPS."""
    is_open = not is_loopback(config.server.host)
    if terminal.confirm("May other machines use this server?", default=is_open):
        if is_open:
            return {}
        terminal.say("  The next start makes a key and a certificate, and prints the address once.")
        tls = "auto" if config.server.tls == "off" else config.server.tls
        return {"server.host": EVERY_ADDRESS, "server.tls": tls}
    return {"server.host": "127.0.0.1"} if is_open else {}
