"""Transcriptions whose sound comes in several requests of one sequence."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EarshotError, OverloadedError, expected_failure
from core.ports import WorkGuard
from engines.base import AsrOptions, AsrResult
from pipeline.transcription.recording import RecordingTranscription, Transcriber
from pipeline.transcription.stitching import join_texts
from web.kserve.tensors import invalid

MAX_SEQUENCES = 64
"Largest number of open sequences: each holds up to 30 s of sound."
IDLE_S = 60.0
"Seconds without a request after which a sequence ends, because its client has left."
MAX_SEQUENCE_S = 2 * 3600
"Longest sound of a sequence in seconds, as of an uploaded recording."
RETRY_AFTER_S = 5


@dataclass(slots=True)
class _Sequence:
    """One sequence. Its own task holds the recording, because requests come and go."""

    opened: asyncio.Future[RecordingTranscription]
    results: list[AsrResult] = field(default_factory=list)
    samples: int = 0
    idle: asyncio.Timeout | None = None
    task: asyncio.Task[None] | None = None
    is_whole: bool = False
    "True: the results of all sound are there."
    error: EarshotError | None = None
    "Reason why it ended before."

    @property
    def text(self) -> str:
        """The words so far."""
        return join_texts(result.text for result in self.results)

    @property
    def failure(self) -> EarshotError:
        """Error for a request to a sequence that has ended."""
        return self.error or invalid("sequence_id", "the sequence has ended")


class Sequences:
    """All open sequences. `run` must run while they are used."""

    def __init__(self, transcriber: Transcriber, guard: WorkGuard) -> None:
        self._transcriber, self._guard = transcriber, guard
        self._open: dict[Hashable, _Sequence] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Owns the tasks of the sequences. Cancelling it ends them all."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    async def push(
        self,
        key: Hashable,
        model: str,
        options: AsrOptions,
        pcm: Pcm,
        *,
        is_start: bool,
        is_end: bool,
    ) -> str:
        """Adds sound to a sequence; returns its words so far, at its end all of them. `key`: the
        caller and its id of the sequence. `is_start`: begins it, and drops an older one of this
        key.

        Raises RequestError for a sequence that is not open, OverloadedError, EngineError.
        """
        if is_start:
            self._drop(key)
            self._open[key] = self._begin(model, options)
        sequence = self._open.get(key)
        if sequence is None:
            raise invalid(
                "sequence_id",
                f"the sequence is not open: it has not begun, or it had no request for {IDLE_S:.0f}"
                " s; begin it with sequence_start",
            )
        try:
            text = await self._add(sequence, pcm, is_end=is_end)
        except BaseException:
            self._drop(key, sequence)
            raise
        if is_end:
            self._drop(key, sequence)
        return text

    def _begin(self, model: str, options: AsrOptions) -> _Sequence:
        if len(self._open) >= MAX_SEQUENCES or self._tasks is None:
            raise OverloadedError(
                f"{MAX_SEQUENCES} sequences are open, the limit", retry_after_s=RETRY_AFTER_S
            )
        sequence = _Sequence(asyncio.get_running_loop().create_future())
        sequence.task = self._tasks.create_task(
            self._guard(self._hold(sequence, model, options), "kserve sequence"),
            name="kserve-sequence",
        )
        return sequence

    async def _add(self, sequence: _Sequence, pcm: Pcm, *, is_end: bool) -> str:
        assert sequence.task is not None
        loop = asyncio.get_running_loop()
        if sequence.idle is not None:
            sequence.idle.reschedule(loop.time() + IDLE_S)
        sequence.samples += len(pcm)
        if sequence.samples > MAX_SEQUENCE_S * ASR_RATE_HZ:
            raise invalid("sequence_id", f"the sequence is longer than {MAX_SEQUENCE_S} s")
        recording = await asyncio.shield(sequence.opened)
        await recording.push(pcm)
        if is_end:
            recording.end()
            await asyncio.wait([sequence.task])
        if sequence.task.done() and not sequence.is_whole:
            raise sequence.failure
        return sequence.text

    async def _hold(self, sequence: _Sequence, model: str, options: AsrOptions) -> None:
        """Holds the recording of a sequence open until its last result. An error is left for the
        next request."""
        try:
            async with asyncio.timeout(IDLE_S) as sequence.idle:
                async with self._transcriber.open(model, options, eager=True) as recording:
                    sequence.opened.set_result(recording)
                    async for result in recording.segment_results():
                        sequence.results.append(result)
                    sequence.is_whole = True
        except TimeoutError:
            sequence.error = invalid(
                "sequence_id", f"the sequence had no request for {IDLE_S:.0f} s"
            )
        except (EarshotError, ExceptionGroup) as error:
            sequence.error = expected_failure(error)
            if sequence.error is None:
                raise
        finally:
            if not sequence.opened.done():
                sequence.opened.set_exception(sequence.failure)
                sequence.opened.exception()  # otherwise asyncio logs it if no request waits
            self._forget(sequence)

    def _drop(self, key: Hashable, sequence: _Sequence | None = None) -> None:
        """Ends a sequence, if it is open. `sequence`: only this one."""
        found = self._open.get(key)
        if found is None or (sequence is not None and found is not sequence):
            return
        del self._open[key]
        if found.task is not None:
            found.task.cancel()

    def _forget(self, sequence: _Sequence) -> None:
        for key in [key for key, known in self._open.items() if known is sequence]:
            del self._open[key]
