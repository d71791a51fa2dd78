"""`earshot talk`: sends a recording or the microphone to a Realtime server and plays the answer.

Exit codes: 0 every turn was answered; 1 one was not, or failed; 2 wrong arguments or an unreadable
file; 5 no connection, or it was refused or lost; 130 interrupted.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from enum import IntEnum
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
    """Holds the conversation and appends the report of each turn to `reports`."""
    transport, request, timeout_s = options.transport, session_request(options), options.timeout
    async with AsyncExitStack() as stack:
        card = stack.enter_context(SoundCard()) if options.mic else None
        conversation, client = await stack.enter_async_context(
            open_conversation(
                address,
                transport,
                request,
                timeout_s=timeout_s,
                on_change=output.change,
                player=card,
            )
        )
        output.line(f"connected to {address.url} over {client.transport}")
        if card is not None:
            output.line("speak; Ctrl-C ends (headphones keep the answer out of the microphone)")
            stack.callback(output.clear)

            def hear(pcm: Pcm) -> None:
                client.microphone.feed(pcm)
                output.hear(pcm)

            card.listen(hear)
        turns = await stack.enter_async_context(aclosing(_turns(conversation, options, recordings)))
        quality: ConnectionReport | None = None
        try:
            async for report in turns:
                reports.append(report)
                quality = await client.quality()
                if options.json:
                    print(to_json(report, quality), flush=True)
                else:
                    output.report(report)
        finally:
            if quality is not None:
                output.line(quality_line(quality))


async def _turns(
    conversation: ConversationClient, options: argparse.Namespace, recordings: Sequence[Pcm]
) -> AsyncGenerator[TurnReport, None]:
    if options.mic:
        turn = 0
        while options.turns is None or turn < options.turns:
            yield await conversation.listen()
            turn += 1
        return
    for turn in range(options.turns or 1):
        if turn:
            await asyncio.sleep(GAP_S)
        if options.text is not None:
            yield await conversation.write(options.text)
        for index, pcm in enumerate(recordings):
            if index:
                await asyncio.sleep(GAP_S)
            yield await conversation.say(pcm)


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
