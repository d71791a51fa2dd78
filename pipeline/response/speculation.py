"""Speculation: a response is begun before the turn is certainly over.

A session has at most one such draft. `DraftBudget` limits how many a server has at once.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from core.ports import Metrics
from engines.base import Message
from pipeline.response.draft import ResponseDraft
from pipeline.response.plan import ResponsePlan
from serving.scheduling.llm_slots import DraftBudget

SpeculationOutcome = Literal["used", "resumed", "changed", "noise", "dropped", "failed", "load"]
"""End of a draft:

- used: it was delivered.
- resumed: the user spoke on.
- changed: in the end the words, the history or the settings were different.
- noise: in the end there were no words.
- dropped: the session did not need it any more.
- failed: an engine gave no answer.
- load: its language model was needed for a response that a user waits for.
"""


def count_waste(metrics: Metrics, kind: Literal["answer", "recognition"], seconds: float) -> None:
    """Counts the seconds of work on a speculative result that was not used."""
    metrics.observe("earshot_speculation_wasted_seconds", seconds, kind=kind)


class Speculation:
    """Holds the speculative draft of one session."""

    def __init__(self, budget: DraftBudget, metrics: Metrics, tasks: asyncio.TaskGroup) -> None:
        self._budget, self._metrics, self._tasks = budget, metrics, tasks
        self._draft: ResponseDraft | None = None

    def begin(self, draft: ResponseDraft) -> None:
        """Starts `draft` in place of the former one.

        Does nothing if the former draft is for the same plan and prompt, or if the server or the
        language model has no room.
        """
        if self._draft is not None:
            if self._is_for(draft.plan, draft.prompt):
                return
            self.drop("changed")
        if self._budget.count >= self._budget.limit or not draft.is_free_to_begin:
            self._metrics.count("earshot_speculation", outcome="refused")
            return
        self._budget.count += 1
        self._draft = draft
        draft.begin(self._tasks)

    def take(self, plan: ResponsePlan, prompt: Sequence[Message]) -> ResponseDraft | None:
        """Returns the draft if plan and prompt are those that it was made with, otherwise None.

        The caller owns the draft from then on.
        """
        draft = self._draft
        if draft is None or not plan.parameters.in_conversation:
            return None
        if draft.has_failed or not self._is_for(plan, prompt):
            self.drop("changed")
            return None
        draft.adopt()
        self._end("used")
        return draft

    def give_up(self) -> None:
        """Drops the draft, because an answer that a user waits for needs the language model."""
        self.drop("load")

    def drop(self, outcome: SpeculationOutcome) -> None:
        """Cancels the draft and counts the work that was wasted."""
        draft = self._draft
        if draft is not None:
            draft.cancel()
            count_waste(self._metrics, "answer", draft.work.total_s)
            self._end("failed" if draft.has_failed else outcome)

    def _is_for(self, plan: ResponsePlan, prompt: Sequence[Message]) -> bool:
        assert self._draft is not None
        return self._draft.plan == plan and self._draft.prompt == tuple(prompt)

    def _end(self, outcome: SpeculationOutcome) -> None:
        self._draft = None
        self._budget.count -= 1
        self._metrics.count("earshot_speculation", outcome=outcome)
