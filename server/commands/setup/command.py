"""Runs `earshot setup`: questions or `--set`, the difference, the confirmation, the file."""

import argparse
import sys
from collections.abc import Mapping

import msgspec

from core.errors import ConfigError, RequestError
from server.commands.exit_codes import ExitCode
from server.commands.setup.engines import InstalledEngines
from server.commands.setup.questions import Terminal, ask_settings
from server.config.load import setting_value
from server.settings.checks import SettingValue
from server.settings.file import SettingsFile
from server.settings.service import SettingsPreview, SettingsService


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    """Changes the settings file. Raises ConfigError, also when the answers end too early."""
    file = SettingsFile.of(environ, options.config, {})
    config = file.load(file.read()[0]).config
    service = SettingsService(file, None, InstalledEngines(config))
    changes = _given(options)
    terminal = Terminal()
    is_asking = not (changes or options.json or options.yes)
    if is_asking:
        terminal.say(f"Settings of {file.file}. Enter keeps what is in [brackets].\n")
        changes = ask_settings(terminal, config)
    preview = service.preview(changes, is_owner=True)
    if preview.problems:
        if options.json:
            _print_json(file, preview, is_saved=False)
            return ExitCode.USAGE
        raise ConfigError("\n".join(str(problem) for problem in preview.problems))
    if not options.json:
        terminal.say(f"\n{preview.diff}\n" if preview.diff else "Nothing changes.")
    if not preview.diff:
        if options.json:
            _print_json(file, preview, is_saved=False)
        return ExitCode.OK
    is_wanted = options.yes or ((is_asking or not options.json) and terminal.confirm("Write it?"))
    if is_wanted:
        _save(service, changes, preview)
    if options.json:
        _print_json(file, preview, is_saved=is_wanted)
    elif is_wanted:
        terminal.say(f"Written to {file.file}. Start the server, or start it again: earshot serve")
    else:
        terminal.say("Nothing was written.")
    return ExitCode.OK if is_wanted or options.json else ExitCode.CANNOT_RUN


def _save(
    service: SettingsService, changes: Mapping[str, SettingValue], preview: SettingsPreview
) -> None:
    try:
        service.save(changes, preview.etag, is_owner=True)
    except RequestError as error:
        raise ConfigError(str(error)) from error


def _given(options: argparse.Namespace) -> dict[str, SettingValue]:
    """Returns the changes of `--set` and `--unset`. Raises ConfigError."""
    changes: dict[str, SettingValue] = dict.fromkeys(options.unset)
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: expected KEY=VALUE")
        changes[key.strip()] = setting_value(tuple(key.strip().split(".")), value)
    return changes


def _print_json(file: SettingsFile, preview: SettingsPreview, *, is_saved: bool) -> None:
    report = {
        "file": str(file.file),
        "is_saved": is_saved,
        "diff": preview.diff,
        "problems": preview.problems,
        "applies": preview.applies,
    }
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
