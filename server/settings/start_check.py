"""Checks that a server would start with a configuration, before the running one stops for it."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from core.errors import EarshotError, StorageError
from core.ports import ToolContext
from devices.registry.database import count_devices
from engines.registry import EngineKind, load
from server.commands.setup.engines import InstalledEngines
from server.compose.choices import choose_one, describe, find_offers, offer_inputs, survey
from server.compose.devices import database_url
from server.compose.plugins import choose_plugins, create_tools
from server.compose.prompt_size import built_in_tools
from server.config import Config
from server.net.listeners import bind
from server.net.tls import open_tls
from server.settings.checks import check_language_model

LOADED_KINDS: tuple[EngineKind, ...] = ("vad", "endpoint", "llm")
"""Kinds of engines that are loaded for the check, besides voice and wake word. Of the recogniser
only the weights are looked at: two of them may not fit into a GPU."""

SLOW_LANGUAGE_MODELS = ("llama_cpp", "transformers", "vllm")
"Language models that are not loaded for the check: it takes minutes, and memory that is in use."


def start_problems(config: Config, own_ports: Collection[int]) -> Iterator[str]:
    """Yields the reasons why a server would not start with this configuration. Blocking: it loads
    the voice and looks for weights, which takes seconds.

    `own_ports`: ports of the running server. They are free again when it has stopped.
    """
    checks = (
        partial(_check_ports, config, own_ports),
        partial(_check_certificate, config),
        partial(check_language_model, config),
        partial(_check_engines, config),
        partial(_check_plugins, config),
        partial(_check_database, config),
    )
    for check in checks:
        try:
            check()
        except EarshotError as error:
            yield str(error)


def _check_ports(config: Config, own_ports: Collection[int]) -> None:
    """Opens the ports that the running server has not. Raises AddressInUse or ConfigError."""
    host, willow, ingrain, kserve = config.server.host, config.willow, config.ingrain, config.kserve
    listeners = (
        (host, config.server.port, "--port"),
        (host, willow.http_port, "willow.http_port"),
        (host, willow.https_port, "willow.https_port"),
        (willow.was_host or host, willow.was_port, "willow.was_port"),
        (ingrain.host, ingrain.port, "ingrain.port"),
        (ingrain.host, ingrain.model_port, "ingrain.model_port"),
        (kserve.host, kserve.http_port, "kserve.http_port"),
        (kserve.host, kserve.grpc_port, "kserve.grpc_port"),
        (host, config.home_assistant.ingress_port, "home_assistant.ingress_port"),
    )
    for address, port, setting in listeners:
        is_main = setting == "--port"
        if not port and not is_main:
            continue
        # A port of our own cannot be opened twice, but the address can be wrong.
        for listener in bind(address, 0 if port in own_ports else port, setting=setting):
            listener.close()


def _check_certificate(config: Config) -> None:
    if config.server.tls not in ("off", "auto"):
        folder = Path(config.paths.state_dir).expanduser()
        open_tls(config.server.tls, folder, (), (), datetime.now(UTC))


def _check_engines(config: Config) -> None:
    """Raises EngineMissing, EngineError or ConfigError for an engine without which no server
    starts."""
    found = survey(config.paths.models_dir)
    offer, *_ = find_offers(config, offer_inputs(config, found))
    try:
        describe(offer)
    except EarshotError:
        if offer.fallback is None:
            raise
        describe(offer.fallback)  # the server uses it, too
    for kind in LOADED_KINDS:
        choice = choose_one(config, kind, found)
        if choice.name not in SLOW_LANGUAGE_MODELS:
            load(kind, choice.name, choice.options)
    InstalledEngines(config).check(config)


def _check_plugins(config: Config) -> None:
    choose_plugins("earshot.doors", config.doors)
    context = ToolContext("", config.language)
    create_tools(
        config.tools,
        {spec.name for skill in built_in_tools(config) for spec in skill.tools(context)},
    )


def _check_database(config: Config) -> None:
    """Raises ConfigError for a wrong address. A database that is away stops no server."""
    with suppress(StorageError):
        count_devices(database_url(config))
