"""`earshot talk`: sends a recording or the microphone to a Realtime server and plays the answer.

Exit codes: 0 every turn was answered; 1 one was not, or failed; 2 wrong arguments or an unreadable
file; 5 no connection, or it was refused or lost; 130 interrupted.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from itertools import count
from pathlib import Path

from bench.client.connection_stats import ConnectionReport, quality_line
from bench.client.conversation import ConversationClient, TurnReport, open_conversation
from bench.client.http import DEFAULT_URL, KEY_VARIABLES, Address, parse_address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import CannotConnect, ClientTransport, ConnectionLost, SessionRequest
from bench.talk.output import TerminalOutput, to_json
from bench.talk.sound_card import NoSoundCard, SoundCard
from core.audio import AudioFrame, Pcm
from core.errors import RequestError
from media.files.decode import decode_file, write_wav

GAP_S = 0.5
"Pause between two turns, as between two sentences of different people."

MAX_LOSSES = 2
"Times that a turn is repeated whose connection is lost. Perhaps the turn itself is the reason."

RECONNECT_LIMIT_S = 15.0
"Time in seconds for which a lost connection is tried again: a server restarts in less."

RECONNECT_PAUSE_S = 0.2
"Pause between two tries, in seconds."

Turn = Callable[[ConversationClient], Awaitable[TurnReport]]
"Holds one turn."

DEFAULT_TIMEOUT_S = 30.0
"Default of `--timeout`."


class TalkExitCode(IntEnum):
    """Exit codes of `talk`; the numbers are the same as in the other commands."""

    ANSWERED = 0
    NOT_ANSWERED = 1
    USAGE = 2
    CONNECTION_FAILED = 5
    INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `talk`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Speaks to a Realtime server and plays its answer."
    parser.epilog = EPILOG
    source = parser.add_argument_group("what to send (one of these)")
    source.add_argument("files", nargs="*", type=Path, metavar="FILE", help=FILE_HELP)
    source.add_argument("--mic", action="store_true", help="use the microphone until Ctrl-C")
    source.add_argument("--text", metavar="WORDS", help="send a text message")
    add_connection(parser, "the configured server on this machine")
    parser.add_argument(
        "--turns",
        type=_positive,
        metavar="N",
        help="number of times that the input is sent (microphone: number of turns)",
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE.wav",
        help="write the audio of the answers to this file",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per turn and nothing else"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print only the transcript and the answer"
    )


def add_connection(
    parser: argparse.ArgumentParser,
    default_server: str = DEFAULT_URL,
    transports: Sequence[ClientTransport] = ("webrtc", "ws"),
) -> None:
    """Adds the options of a command that holds a conversation.

    default_server: server that is used without --url; it is only shown in the help. transports:
    those that the command can use.
    """
    add_server(parser, default_server)
    parser.add_argument(
        "--transport",
        choices=transports,
        default="webrtc",
        help="way to connect; default %(default)s",
    )
    parser.add_argument("--language", metavar="CODE", help="spoken language, such as en or de")
    parser.add_argument(
        "--model", default="default", help="name of the model, for servers other than Earshot"
    )
    parser.add_argument(
        "--turn-detection",
        choices=("semantic_vad", "server_vad"),
        default="semantic_vad",
        help="how the end of a turn is detected; default %(default)s, as on the web page",
    )


def add_server(parser: argparse.ArgumentParser, default: str = DEFAULT_URL) -> None:
    """Adds the options with which every client reaches its server.

    default: server that is used without --url; it is only shown in the help.
    """
    parser.add_argument("--url", help=f"address of the server; default: {default}")
    parser.add_argument("--key", help=f"key of the server; default: ${' or $'.join(KEY_VARIABLES)}")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="accept any certificate, such as a self-signed one",
    )
    parser.add_argument(
        "--timeout",
        type=_positive_s,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds without any event after which an answer is given up (%(default)g)",
    )


FILE_HELP = "recordings in any common format; each is one turn, sent in real time"

EPILOG = """voice to voice is measured here, at the client: from the last sample of speech sent to
the first audible sample of the answer received. Speech ends with the last 10 ms of the recording
that are within 30 dB of its loudest 10 ms (and 10 dB above its noise). If other sound
follows the last speech, the end of speech cannot be detected and no time is shown.

network shows what both ends measure of the connection: up is to the server, down is from it.

exit codes:
  0  every turn was answered
  1  a turn was not answered, or failed
  2  wrong arguments, or a file that cannot be read
  5  the connection failed, was refused or was lost
  130  interrupted
"""


def main(options: argparse.Namespace) -> int:
    """Holds the conversation; returns the exit code."""
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        return TalkExitCode.INTERRUPTED
    except (RequestError, NoSoundCard) as error:
        return _print_error(error, TalkExitCode.USAGE)
    except (CannotConnect, ConnectionLost) as error:
        return _print_error(error, TalkExitCode.CONNECTION_FAILED)


def address_of(options: argparse.Namespace) -> Address:
    """Returns the server's address from the options. Raises RequestError if it is malformed."""
    key = options.key or next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)
    return parse_address(options.url or DEFAULT_URL, key, is_insecure=options.insecure)


def session_request(options: argparse.Namespace) -> SessionRequest:
    """Returns the session settings that the options ask for."""
    return SessionRequest(options.model, options.language, options.turn_detection)


def read_recording(path: Path) -> Pcm:
    """Returns the recording at 24 kHz mono. Raises RequestError for a file that cannot be read."""
    try:
        return decode_file(path, RATE_HZ)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}", code="unreadable") from error
    except RequestError as error:
        raise RequestError(f"{path}: {error}", code=error.code) from error


async def _main(options: argparse.Namespace) -> int:
    if sum((bool(options.files), options.mic, options.text is not None)) != 1:
        raise RequestError("give one of: FILE, --mic, --text WORDS (see earshot talk --help)")
    address = address_of(options)
    recordings = [await asyncio.to_thread(read_recording, path) for path in options.files]
    is_terminal = sys.stdout.isatty() and not options.json
    output = TerminalOutput(sys.stdout, is_terminal, is_quiet=options.quiet or options.json)
    reports: list[TurnReport] = []
    try:
        await _talk(options, address, recordings, output, reports)
    finally:  # also after Ctrl-C: the answers so far are saved
        if options.save and reports:
            _save(options.save, [frame for report in reports for frame in report.audio])
    is_answered = all(report.status == "answered" for report in reports)
    return TalkExitCode.ANSWERED if is_answered else TalkExitCode.NOT_ANSWERED


async def _talk(
    options: argparse.Namespace,
    address: Address,
    recordings: Sequence[Pcm],
    output: TerminalOutput,
    reports: list[TurnReport],
) -> None:
    """Holds the conversation and appends the report of each turn to `reports`. A connection that
    is lost is opened again in the same conversation, and the turn that was cut is repeated."""
    with ExitStack() as stack:
        card = stack.enter_context(SoundCard()) if options.mic else None
        if card is not None:
            stack.callback(output.clear)
        talk = Talk(options, address, TurnQueue(_turns(options, recordings)), card, output, reports)
        try:
            await talk.hold()
        finally:
            if talk.quality is not None:
                output.line(quality_line(talk.quality))


def _turns(options: argparse.Namespace, recordings: Sequence[Pcm]) -> Iterator[Turn]:
    """Yields what holds each turn."""
    if options.mic:
        rounds = count() if options.turns is None else range(options.turns)
        for _ in rounds:
            yield ConversationClient.listen
        return
    for _ in range(options.turns or 1):
        if options.text is not None:
            yield partial(ConversationClient.write, text=options.text)
        for pcm in recordings:
            yield partial(ConversationClient.say, pcm=pcm)


class TurnQueue:
    """The turns that are still to be held."""

    def __init__(self, turns: Iterator[Turn]) -> None:
        self._turns, self._losses = turns, 0
        self.next: Turn | None = next(turns)
        "The next turn; None: all are done."

    def done(self) -> None:
        """Notes that `next` is done."""
        self._losses = 0
        self.next = next(self._turns, None)

    def may_repeat(self) -> bool:
        """Notes that the connection was lost in `next`. Returns False after MAX_LOSSES."""
        self._losses += 1
        return self._losses <= MAX_LOSSES


@dataclass(slots=True)
class Talk:
    """One run of `talk`, over one connection after the other."""

    options: argparse.Namespace
    address: Address
    turns: TurnQueue
    card: SoundCard | None
    output: TerminalOutput
    reports: list[TurnReport]
    conversation_id: str = ""
    "Id of the conversation, as far as the server has told one."
    quality: ConnectionReport | None = None
    "Quality of the latest connection."

    async def hold(self) -> None:
        """Holds all turns. Raises CannotConnect; ConnectionLost, if the conversation cannot go
        on."""
        clock = asyncio.get_running_loop().time
        lost_at: float | None = None
        while True:
            try:
                return await self._connected(lost_at)
            except ConnectionLost as error:
                if not self.conversation_id or not self.turns.may_repeat():
                    raise
                lost_at = clock()
                self.output.line(f"{error}; connecting again")
            except CannotConnect:
                if lost_at is None or clock() - lost_at > RECONNECT_LIMIT_S:
                    raise
                await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _connected(self, lost_at: float | None) -> None:
        """Holds turns over one connection. `lost_at`: when the one before was lost."""
        options, card, output = self.options, self.card, self.output
        opened = open_conversation(
            self.address,
            options.transport,
            replace(session_request(options), conversation_id=self.conversation_id),
            timeout_s=options.timeout,
            on_change=output.change,
            player=card,
        )
        async with opened as (conversation, client):
            self.conversation_id = client.conversation_id
            output.line(f"connected to {self.address.url} over {client.transport}")
            if lost_at is not None:
                away_s = asyncio.get_running_loop().time() - lost_at
                output.line(f"the conversation goes on after {away_s:.1f} s")
            if card is not None:
                output.line("speak; Ctrl-C ends (headphones keep the answer out of the microphone)")

                def hear(pcm: Pcm) -> None:
                    client.microphone.feed(pcm)
                    output.hear(pcm)

                card.listen(hear)
            while (turn := self.turns.next) is not None:
                if self.reports and card is None:
                    await asyncio.sleep(GAP_S)
                report = await turn(conversation)
                self.reports.append(report)
                self.turns.done()
                self.quality = await client.quality()
                if options.json:
                    print(to_json(report, self.quality), flush=True)
                else:
                    output.report(report)


def _save(path: Path, sound: list[AudioFrame]) -> None:
    if not sound:
        print(f"earshot: no answer was audible, so {path} is not written", file=sys.stderr)
        return
    try:
        write_wav(path, sound)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}", code="unwritable") from error


def _print_error(error: Exception, code: TalkExitCode) -> TalkExitCode:
    print(f"earshot: {error}", file=sys.stderr)
    return code


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _positive_s(text: str) -> float:
    number = float(text)
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 3600 seconds")
    return number


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.talk.command")
    add_arguments(_parser)
    sys.exit(main(_parser.parse_args()))
