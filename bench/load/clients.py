"""Clients of a load test: each sends one request after another, until all requests are done."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import takewhile
from time import perf_counter

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

from bench.client.http import Address, connect_errors, refusal
from bench.load.bodies import ChunkReport, LoadKind, PlayedSound, count_results
from core.errors import RemoteProtocolError
from engines.runtime.openai_http.sse import SseReader


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Parameters of one run, which is one row of the table."""

    address: Address
    kind: LoadKind
    clients: int
    requests: int
    "Number of requests of all clients together; with `is_over` their limit."
    timeout_s: float
    "Longest time of a request."
    is_kept: bool
    "True: each client keeps its connection. False: each request opens a new one."


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Result of one request."""

    took_ms: float
    "Time from the start of the request to the last byte of the answer."
    error: str = ""
    "HTTP status or kind of the failure; empty for success."
    first_ms: float | None = None
    "Time until the first text or sound of a stream; None without a stream, or if nothing came."
    tokens: int = 0
    sound_s: float = 0.0
    "Length of the sound."
    gap_ms: float = 0.0
    "Time for which a player, which starts with the first sound, had nothing to play."


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Answers to all clients of one run."""

    plan: LoadPlan
    wall_s: float
    "Time from the first request to the last answer."
    answers: Sequence[LoadAnswer] = field(default=(), repr=False)

    @property
    def answered(self) -> list[LoadAnswer]:
        """Answers without an error."""
        return [answer for answer in self.answers if not answer.error]

    @property
    def errors(self) -> Counter[str]:
        """Number of failed requests by `LoadAnswer.error`."""
        return Counter(answer.error for answer in self.answers if answer.error)

    @property
    def requests_per_s(self) -> float:
        """Answered requests per second of the wall time."""
        return len(self.answered) / self.wall_s

    @property
    def sound_per_s(self) -> float:
        """Seconds of sound of all answers per second of the wall time."""
        return sum(answer.sound_s for answer in self.answered) / self.wall_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all answers per second of the wall time."""
        return sum(answer.tokens for answer in self.answered) / self.wall_s


async def check_server(address: Address, kind: LoadKind, timeout_s: float) -> None:
    """Sends one request, which also loads the model. Raises CannotConnect if it is not answered."""
    async with open_session(address, timeout_s, is_kept=False) as session:
        with connect_errors(address):
            async with _post(session, address, kind, kind.body(-1)) as response:
                if response.status != HTTPStatus.OK:
                    raise await refusal(response)
                await response.read()


async def run(
    plan: LoadPlan,
    is_over: asyncio.Event | None = None,
    on_answer: Callable[[], object] = lambda: None,
) -> LoadReport:
    """Runs all clients until the requests of the plan are done.

    is_over: when it is set, no request is begun any more; those in progress get their answers.
    on_answer: called after each answer or error.
    """
    answers: list[LoadAnswer] = []
    numbers = takewhile(
        lambda _: is_over is None or not is_over.is_set(), iter(range(plan.requests))
    )
    async with open_session(plan.address, plan.timeout_s, is_kept=plan.is_kept) as session:
        began_s = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(plan.clients, plan.requests)):
                tasks.create_task(_run_client(plan, session, numbers, answers, on_answer))
        wall_s = perf_counter() - began_s
    return LoadReport(plan, wall_s, answers)


async def _run_client(
    plan: LoadPlan,
    session: ClientSession,
    numbers: Iterator[int],
    answers: list[LoadAnswer],
    on_answer: Callable[[], object],
) -> None:
    for number in numbers:
        answer = await send(plan, session, plan.kind.body(number))
        answers.append(answer)
        on_answer()


async def send(plan: LoadPlan, session: ClientSession, body: dict[str, object]) -> LoadAnswer:
    """Sends one request, and reads its answer to the end."""
    began_s = perf_counter()
    first_ms: float | None = None
    chunk_report, sound, error = ChunkReport(), PlayedSound(), ""
    try:
        async with _post(session, plan.address, plan.kind, body) as response:
            if response.status != HTTPStatus.OK:
                error = str(response.status)
                await response.read()
            elif plan.kind.form == "sound":
                async for data in response.content.iter_any():
                    sound.push(data, perf_counter())
                if sound.first_s is None:
                    error = "no sound"
                else:
                    first_ms = 1000 * (sound.first_s - began_s)
            elif plan.kind.form == "text":
                first_s = await _read_stream(response, chunk_report)
                first_ms = None if first_s is None else 1000 * (first_s - began_s)
                error = chunk_report.error or ("" if chunk_report.text_chunks else "no text")
            elif count_results(await response.read()) != plan.kind.expected:
                error = "wrong number of results"
    except TimeoutError:
        error = "timeout"
    except ClientError as failure:
        error = type(failure).__name__
    except (msgspec.DecodeError, RemoteProtocolError):
        error = "unreadable answer"
    return LoadAnswer(
        1000 * (perf_counter() - began_s),
        error,
        first_ms,
        chunk_report.tokens,
        sound.length_s,
        1000 * sound.gap_s,
    )


async def _read_stream(response: ClientResponse, chunk_report: ChunkReport) -> float | None:
    """Reads the events to their end.

    Returns the time of the first text, on the clock of `perf_counter`; None without text.
    """
    events, first_s = SseReader(), None
    async for data in response.content.iter_any():
        for event in events.receive_data(data):
            chunk_report.push(event)
            if first_s is None and chunk_report.text_chunks:
                first_s = perf_counter()
    return first_s


def open_session(address: Address, timeout_s: float, *, is_kept: bool) -> ClientSession:
    connector = TCPConnector(limit=0, force_close=not is_kept, ssl=address.ssl())
    return ClientSession(
        connector=connector, headers=address.headers, timeout=ClientTimeout(total=timeout_s)
    )


def _post(
    session: ClientSession, address: Address, kind: LoadKind, body: dict[str, object]
) -> AbstractAsyncContextManager[ClientResponse]:
    return session.post(
        f"{address.url}{kind.path}",
        data=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
    )
