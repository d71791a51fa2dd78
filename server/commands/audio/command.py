"""Runs `earshot audio ACTION`."""

import argparse
from pathlib import Path

from core.errors import ConfigError
from engines.registry import load
from server.commands.audio.recordings import find_recordings
from server.commands.audio.tokenize import RecordingTokenizer
from server.commands.exit_codes import ExitCode
from server.config import Config
from serving.codec.model import find_codecs
from serving.placement.offers import LoadableModel


def run(options: argparse.Namespace, config: Config) -> ExitCode:
    """Encodes the recordings and prints how many. Raises EarshotError."""
    offer = _find(options.model, Path(config.paths.models_dir).expanduser())
    settings = {**offer.options, "device": options.device}
    codec = load("codec", offer.engine, settings)
    name = offer.aliases[0] if offer.aliases else offer.name
    tokenizer = RecordingTokenizer(codec, name, options.codebooks, options.out)
    tokenizer.run(find_recordings(options.inputs))
    outcomes = tokenizer.outcomes
    print(", ".join(f"{outcomes[what]} {what}" for what in ("made", "there already", "failed")))
    return ExitCode.CANNOT_RUN if outcomes["failed"] else ExitCode.OK


def _find(name: str, models_dir: Path) -> LoadableModel:
    """Returns the codec of that name in the models folder. Raises ConfigError, which names those
    that are there."""
    offers = find_codecs(models_dir)
    for offer in offers:
        if name in (offer.name, *offer.aliases):
            return offer
    names = ", ".join(offer.name for offer in offers)
    known = f"there are: {names}" if names else "`earshot models pull mimi` fetches one"
    raise ConfigError(f"--model {name}: no such codec in {models_dir}; {known}")
