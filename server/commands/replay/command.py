"""`earshot replay TRACE`: parses options, replays sessions and prints the differences. Exit codes:
0 all turns have the same words; 1 some turns differ, or a session could not be replayed; 2 the
trace does not exist, or wrong arguments."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.json import encode
from msgspec.json import format as pretty

from core.errors import RequestError
from server.commands.exit_codes import ExitCode
from server.commands.replay.diff import SessionDiff, as_json, as_text, pairs
from server.commands.replay.run import (
    ReplayEnvironment,
    replay,
    replay_environment,
    replay_obstacle,
    select_sessions,
)
from server.commands.replay.trace_reader import RecordedSession, read
from server.config import Config

DIFFERENT = 1
"Exit code for a difference."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replay` to the parser."""
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help="JSONL file of a trace that contains audio"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument(
        "--session",
        action="append",
        default=[],
        metavar="ID",
        help="replay only this session; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--act",
        action="store_true",
        help=(
            "let tools act as in the recorded run, even in the real house (default: they change"
            " nothing)"
        ),
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="N",
        help=(
            "play the audio N times faster: sooner done, but the measured times are not valid (1)"
        ),
    )


def run(options: argparse.Namespace, read_config: Callable[[], Config]) -> int:
    """Replays the chosen sessions; returns the exit code. Raises ConfigError or
    EngineError."""
    try:
        sessions = select_sessions(read(options.trace), options.session)
    except RequestError as error:
        print(f"earshot: {options.trace}: {error}", file=sys.stderr)
        return ExitCode.USAGE
    differences = asyncio.run(_replay_all(sessions, read_config(), options.speed, options.act))
    if options.json:
        print(pretty(encode(as_json(differences))).decode())
    else:
        print(as_text(differences))
    return ExitCode.OK if all(difference.is_same for difference in differences) else DIFFERENT


async def _replay_all(
    sessions: Sequence[RecordedSession], config: Config, speed: float, runs_tools: bool
) -> list[SessionDiff]:
    """Replays sessions one after the other: at the same time they would slow each other down."""
    if all(replay_obstacle(session) for session in sessions):
        return [SessionDiff(session, (), replay_obstacle(session)) for session in sessions]
    async with replay_environment(config, runs_tools=runs_tools) as environment:
        return [await _replay_one(environment, session, speed) for session in sessions]


async def _replay_one(
    environment: ReplayEnvironment, session: RecordedSession, speed: float
) -> SessionDiff:
    if problem := replay_obstacle(session):
        return SessionDiff(session, (), problem)
    print(f"replaying {session.id}, {session.sound_s:.0f} s", file=sys.stderr, flush=True)
    try:
        replayed = await replay(environment, session, speed)
    except RequestError as error:
        return SessionDiff(session, (), str(error))
    if not session.has_words:
        replayed = [replace(turn, transcript="", answer="") for turn in replayed]
    return SessionDiff(session, pairs(session.turns, replayed))


def _speed(text: str) -> float:
    speed = float(text)
    if not 0.1 <= speed <= 100:
        raise argparse.ArgumentTypeError("must be 0.1 to 100")
    return speed
