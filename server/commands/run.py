"""Runs the parsed command; an expected failure becomes one line and an exit code."""

import argparse
import asyncio
import gc
import os
import select
import sys
from itertools import chain
from pathlib import Path
from typing import NoReturn

from core.errors import ConfigError, EarshotError, expected_failure
from server.commands.exit_codes import ExitCode, exit_code_for
from server.config import Config
from server.config.load import DOTENV_FILE, FLAGS, EffectiveConfig, add_dotenv, load


def run(options: argparse.Namespace, started_s: float) -> int:
    """Runs the command and returns the exit code. `started_s`: `time.monotonic()` at process
    start."""
    try:
        add_dotenv(Path(DOTENV_FILE), os.environ)
        code = int(_run(options, started_s))
        sys.stdout.flush()  # so that a closed pipe shows here, and not while Python ends
        return code
    except BrokenPipeError:
        if not _is_stdout_closed():
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # receives what is not written yet
        return ExitCode.OUTPUT_CLOSED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return ExitCode.INTERRUPTED
    except Exception as error:
        expected = expected_failure(error)
        if expected is None:
            raise
        _print_error(expected)
        return exit_code_for(expected)


def _is_stdout_closed() -> bool:
    """Returns True if nobody reads the output any more, as after `earshot config | head -1`."""
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _run(options: argparse.Namespace, started_s: float) -> int:
    """Runs the command and returns the exit code. Each command is imported only when it runs: most
    need only a few of the modules."""
    match options.command:
        case "serve":
            return _serve(options, started_s)
        case "config":
            from server.config.show import show

            print(show(_effective(options)), end="")
        case "doctor":
            return _doctor(options)
        case "talk":
            from bench.talk.command import main as talk

            _complete_options(options)
            return int(talk(options))
        case "bench":
            from bench import cli

            if url := getattr(options, "url", None):
                options.key = _key_for(options, url)
            return int(cli.main(options))
        case "models":
            from server.commands.models.command import run

            return run(options, lambda: load(os.environ, file=options.config).config)
        case "replay":
            from server.commands.replay.command import run as replay

            return replay(options, lambda: load(os.environ, file=options.config).config)
        case "devices" | "keys" | "speakers" | "voices" | "cluster":
            return _run_with_config(options, load(os.environ, file=options.config).config)
        case "audio":
            from server.commands.audio.command import run as audio

            return audio(options, load(os.environ, file=options.config).config)
        case "engines":
            from server.commands.engines.command import run as engines

            config = load(os.environ, file=options.config).config
            return engines(options, config, os.environ.get("CUDA_VISIBLE_DEVICES"))
        case "backup" | "restore":
            from server.commands.backup.command import backup, restore

            return (backup if options.command == "backup" else restore)(options, os.environ)
        case "service":
            from server.commands.service.command import run as service

            return service(options, os.environ)
        case "setup":
            from server.commands.setup.command import run as setup

            return setup(options, os.environ)
        case "completion":
            from server.commands.completion import script

            print(script(options.shell))
        case "extras":
            from server.commands import extras

            return extras.run(options)
    return ExitCode.OK


def _run_with_config(options: argparse.Namespace, config: Config) -> int:
    """Runs a command that manages a running server or the cluster, and returns the exit code."""
    match options.command:
        case "devices":
            from server.commands.devices import run as devices

            return devices(options, config, os.environ)
        case "keys":
            from server.commands.keys.command import run as keys

            return keys(options, config, os.environ)
        case "speakers":
            from server.commands.speakers.command import run as speakers

            return speakers(options, config, os.environ)
        case "voices":
            from server.commands.voices.command import run as voices

            return voices(options, config, os.environ)
        case _:
            from server.commands.cluster.command import run as cluster

            return cluster(options, config, os.environ)


def _serve(options: argparse.Namespace, started_s: float) -> int:
    """Runs the server until it is stopped, and again if it asks for that. Returns the exit code."""
    if options.as_model_host is not None:
        from server.gateways.model_host import run_model_host

        run_model_host(_effective(options).config, *options.as_model_host)
        return ExitCode.OK
    gc.disable()  # what an import creates stays: looking through it for garbage is in vain
    from server import serve
    from server.settings.file import SettingsFile

    gc.enable()

    settings = SettingsFile.of(os.environ, options.config, _flags(options))
    config = _effective(options).config
    if options.as_gateway is not None:
        from server.gateways.member import Member

        member = Member.join(options.as_gateway)
        serve.run(config, settings, started_s, member)
        return ExitCode.OK
    status: int = ExitCode.OK
    if (count := _gateways(config.server.gateways)) > 1:
        from server.gateways.parent import supervise

        outcome = supervise(config, started_s, count)
        status, port = outcome.status, outcome.restart_port
    else:
        port = serve.run(config, settings, started_s)
    if port is not None:
        _start_again(config.server.port, port)
    return status


def _gateways(configured: int) -> int:
    """Returns the number of gateways; 0 means one for every two cores: recognisers and voices need
    the others."""
    if configured or sys.platform != "linux":
        return configured or 1
    return max(1, len(os.sched_getaffinity(0)) // 2)


def _start_again(wanted_port: int, port: int) -> NoReturn:
    """Replaces this process by a new server with the same arguments. Process number, folder and
    variables stay, so that systemd, a container and a terminal see the same server."""
    # Port 0 means any free port; browsers look for the server where it was.
    more = [] if wanted_port else ["--port", str(port)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], *more])  # noqa: S606 - ourselves


def _complete_options(options: argparse.Namespace) -> None:
    """Sets the URL and key of a client. Without `--url`, its server is the configured one. Raises
    ConfigError if the configuration is needed and wrong."""
    from server.commands.server_api import address_of

    if options.url:
        options.key = _key_for(options, options.url)
        return
    address = address_of(options, load(os.environ).config, os.environ)
    options.url, options.key, options.insecure = address.url, address.key, address.is_insecure


def _key_for(options: argparse.Namespace, url: str) -> str | None:
    """Returns the API key for the server at `url`: the key of the command line or of a variable,
    else, for a server on this machine, the one of the settings or of the state folder."""
    from server.commands.server_api import address_of

    address_options = argparse.Namespace(url=url, key=options.key, insecure=options.insecure)
    try:
        return address_of(address_options, load(os.environ).config, os.environ).key
    except ConfigError:  # the client reports a wrong address; other servers need no settings
        explicit_key: str | None = options.key
        return explicit_key


def _doctor(options: argparse.Namespace) -> int:
    """Runs doctor. A wrong configuration is printed like any other failed check."""
    from server.commands import doctor
    from server.commands.doctor_probes import ProbeResult
    from serving.models.user_catalogue import use_catalogue

    try:
        effective = _effective(options)
        use_catalogue(effective.config.models.catalogue)
    except ConfigError as error:
        problems = (ProbeResult("fail", line) for line in str(error).splitlines())
        doctor.show(problems, as_json=options.json)
        return ExitCode.CANNOT_RUN
    results = doctor.examine(effective.config)
    if options.update:
        from server.commands.release_check import examine_release

        results = chain(results, examine_release(os.environ))
    can_answer = doctor.show(results, as_json=options.json)
    return ExitCode.OK if can_answer else ExitCode.CANNOT_RUN


def _effective(options: argparse.Namespace) -> EffectiveConfig:
    return load(os.environ, file=options.config, flags=_flags(options))


def _flags(options: argparse.Namespace) -> dict[str, str]:
    """Returns the options that set a setting."""
    given = {flag: getattr(options, flag.strip("-").replace("-", "_")) for flag in FLAGS}
    return {flag: value for flag, value in given.items() if value is not None}


def _print_error(error: EarshotError) -> None:
    for line in str(error).splitlines():
        print(f"earshot: {line}", file=sys.stderr)
