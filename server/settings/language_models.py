"""Finds language models on this machine, and lets one answer a test question."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import aiohttp
from msgspec import Struct, convert, json

from core.errors import ConfigError, EarshotError, EngineError, RequestError
from engines.base import LlmOptions, Message, TextDelta
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import AUTO, Settings

USUAL_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    8080: "llama.cpp",
    1234: "LM Studio",
    8000: "vLLM",
}
"Ports at which language model servers listen by default."

SEARCH_LIMIT_S = 2.0
"Time that each port has to list its models. A server on this machine needs milliseconds."
MAX_LIST_BYTES = 256 * 1024
"Largest list of models that is read."
MAX_MODELS = 100
"Largest number of models that are listed for one server."
TEST_LIMIT_S = 60.0
"Time for the test answer. A cold model is read from disk first, which takes most of it."
MAX_ANSWER_CHARS = 500
"Longest part of the test answer that is returned."
QUESTION: Mapping[str, str] = {
    "en": "Say hello in one short sentence.",
    "de": "Sag in einem kurzen Satz Hallo.",
    "fr": "Dis bonjour en une courte phrase.",
    "es": "Saluda con una frase corta.",
    "it": "Saluta con una frase breve.",
    "nl": "Zeg hallo in één korte zin.",
    "pt": "Diga olá em uma frase curta.",
}
"Test question by language; in other languages the English one."
MAX_ANSWER_TOKENS = 200
"Longest test answer. Models that think need most of it before they say a word."


class FoundLanguageModels(Struct, frozen=True):
    """A language model server on this machine."""

    name: str
    "Program that usually listens at its port."
    base_url: str
    models: tuple[str, ...]


class LanguageModelSearch(Struct, frozen=True):
    """Language model servers that answered on this machine."""

    servers: tuple[FoundLanguageModels, ...]
    tried: tuple[str, ...]
    "Addresses that were asked."


class LanguageModelTest(Struct, frozen=True):
    """Language model to ask a test question."""

    base_url: str
    model: str = AUTO
    api_key: str | None = None
    "None: the saved key, if this address is that of the saved language model."
    language: str = "en"


class LanguageModelAnswer(Struct, frozen=True):
    """Answer of a language model to the test question."""

    text: str
    model: str
    "Model and address that answered, in words."
    first_ms: int
    "Milliseconds until the first words."
    took_ms: int
    "Milliseconds until the end."


class _Model(Struct):
    id: str
    owned_by: str = ""


class _ModelList(Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class LanguageModelFinder:
    """Asks the usual ports of this machine, and no other address."""

    own_ports: Collection[int] = ()
    "Ports of this server, which are left out."
    ports: Mapping[int, str] = field(default_factory=lambda: USUAL_PORTS)

    async def search(self) -> LanguageModelSearch:
        """Returns the servers that list models, each asked for `SEARCH_LIMIT_S` at most."""
        ports = {port: name for port, name in self.ports.items() if port not in self.own_ports}
        # No proxy and no redirect: nothing but this machine is asked.
        async with aiohttp.ClientSession(trust_env=False) as client:
            found = await asyncio.gather(
                *(self._models(client, port, name) for port, name in ports.items())
            )
        servers = tuple(server for server in found if server is not None)
        return LanguageModelSearch(servers, tuple(_address(port) for port in ports))

    async def _models(
        self, client: aiohttp.ClientSession, port: int, name: str
    ) -> FoundLanguageModels | None:
        url = _address(port)
        try:
            async with (
                asyncio.timeout(SEARCH_LIMIT_S),
                client.get(f"{url}/models", allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    return None
                body = await answer.content.read(MAX_LIST_BYTES)
                while chunk := await answer.content.read(MAX_LIST_BYTES - len(body)):
                    body += chunk
            models = convert(json.decode(body), _ModelList).data[:MAX_MODELS]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError):
            return None  # no server, or another program
        return FoundLanguageModels(name, url, tuple(model.id for model in models))


async def test_language_model(asked: LanguageModelTest, api_key: str) -> LanguageModelAnswer:
    """Asks one question. Raises RequestError bad_language_model for a wrong address, and
    language_model_failed if no answer comes."""
    try:
        options: dict[str, object] = {
            "base_url": asked.base_url.strip(),
            "model": asked.model.strip() or AUTO,
            "api_key": api_key,
            "first_token_timeout_s": TEST_LIMIT_S,
            "max_output_tokens": MAX_ANSWER_TOKENS,
        }
        llm = OpenAiLlm(convert(options, Settings))
    except (ConfigError, EngineError, ValueError) as error:
        raise RequestError(str(error), code="bad_language_model", param="base_url") from None
    started = time.monotonic()
    try:
        async with asyncio.timeout(TEST_LIMIT_S):
            named = await llm.probe()
            text, first_s = await _answer(llm, asked.language)
    except TimeoutError:
        why = f"no answer within {TEST_LIMIT_S:g} s"
        raise RequestError(why, code="language_model_failed") from None
    except EarshotError as error:
        raise RequestError(str(error), code="language_model_failed") from None
    finally:
        await llm.aclose()
    if not text.strip():
        raise RequestError(f"{named} answers without a word", code="language_model_failed")
    took_s = time.monotonic() - started
    ms = round(1000 * first_s), round(1000 * took_s)
    return LanguageModelAnswer(text.strip()[:MAX_ANSWER_CHARS], named, *ms)


async def _answer(llm: OpenAiLlm, language: str) -> tuple[str, float]:
    """Returns the text, and the seconds until its first piece."""
    question: Sequence[Message] = [Message("user", QUESTION.get(language, QUESTION["en"]))]
    started, first_s, text = time.monotonic(), 0.0, ""
    options = LlmOptions()
    async with aclosing(llm.reply(question, (), language=language, options=options)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                first_s = first_s or time.monotonic() - started
                text += delta.text
    return text, first_s


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"
