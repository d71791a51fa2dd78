"""Policy by which the scheduler treats one kind of model, and the Protocol of that model's
workers. The scheduler itself never looks into an item."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

ItemT = TypeVar("ItemT")
"Type of one item to compute: for speech recognition the audio of an utterance."
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
ResultT = TypeVar("ResultT")
"Type of the result of one item."

MAX_WAITING = 256
"""Largest number of waiting requests of most kinds of models. It bounds memory where calls are so
fast that the expected wait stays below its limit. Beyond it the least urgent request is refused."""


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """Rule for the requests of one priority."""

    wait_limit_s: float
    "Expected wait in seconds above which a new request is refused."
    deadline_s: float
    """Seconds until a worker must have begun. At least twice `wait_limit_s`, because more urgent
    work may be served first."""
    is_droppable: bool = False
    """True: the caller can continue without the result. So a newer request of the same sequence
    takes the place of a waiting one."""
    is_rationed: bool = False
    """True: these requests only get a limited share of the workers' time, see `WorkerLoad`. Models
    that continue from their own state are exempt."""
    is_bulk: bool = False
    """True: nobody waits for a single result. Such requests never share a call with others, and
    their calls stay short."""
    promoted_to: IntEnum | None = None
    "Priority that `Scheduler.promote` gives a waiting request; None: it stays as it is."


def _no_sequence(_: object) -> None:
    """The item belongs to no sequence."""


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class SchedulingPolicy(Generic[ItemT]):
    """Rules by which the scheduler treats one kind of model.

    Items of one sequence belong together, as the growing audio of one utterance does: a newer item
    replaces an older one that waits, and a worker may keep state between them.

    Example:
        class EmbedPriority(IntEnum):
            QUERY = 0
            DOCUMENT = 1

        EMBED_SCHEDULING: SchedulingPolicy[str] = SchedulingPolicy(
            kind="embed",
            work="embedding",
            rules={
                EmbedPriority.QUERY: PriorityRule(wait_limit_s=2, deadline_s=10),
                EmbedPriority.DOCUMENT: PriorityRule(60, 300, is_bulk=True),
            },
        )
    """

    kind: str
    "Kind of the model, such as asr: in errors, and in the names of metrics (`earshot_KIND_...`)."
    work: str
    "Name of the work in error messages, a noun such as recognition."
    rules: Mapping[IntEnum, PriorityRule]
    "Rule of each priority. A smaller number is more urgent."
    max_waiting: int = MAX_WAITING
    "Largest number of waiting requests."
    sequence_of: Callable[[ItemT], str | None] = _no_sequence
    "Returns the id of the sequence that an item belongs to; None: it stands alone."
    is_last: Callable[[ItemT], bool] = _always
    "Returns True if an item ends its sequence. Then the worker keeps nothing of it."


class BatchModelInfo(Protocol):
    """Properties of a loaded model that the scheduler needs; `AsrInfo` has them."""

    @property
    def name(self) -> str:
        """Name of the engine."""
        ...

    @property
    def max_batch(self) -> int:
        """Largest number of items in one call."""
        ...

    @property
    def is_incremental(self) -> bool:
        """True: an item costs only what is new since the last item of its sequence."""
        ...


class BatchWorker(Protocol[ItemT_contra, ResultT]):
    """Process or thread that computes with one loaded model; for speech recognition
    `serving.workers.process.ProcessWorker`."""

    @property
    def is_ready(self) -> bool:
        """True if the worker is running and has loaded its model."""
        ...

    async def run(self) -> None:
        """Keeps the worker running until it is cancelled. Raises EngineError when the very first
        load fails."""
        ...

    async def ready(self) -> BatchModelInfo:
        """Waits until the model is loaded, and returns its properties. After the first load,
        EngineCrashed means that the worker was lost and cannot be restarted just now."""
        ...

    async def decode(self, items: Sequence[ItemT_contra], /) -> list[ResultT]:
        """Computes one batch of items and returns one result for each, in their order.

        Ends within a bounded time: raises EngineTimeout when the model hangs.
        """
        ...

    def forget(self, sequence: str, /) -> None:
        """Drops what is kept for a sequence."""
        ...
