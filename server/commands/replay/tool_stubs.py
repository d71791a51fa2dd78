"""Replaces tools that change something by their recorded results: a replay must not open a
garage."""

import json
import logging
from collections import deque
from collections.abc import Iterable, Mapping

from core.ports import ToolOutcome
from engines.base import ToolCall
from pipeline.tools.calls.results import as_json
from pipeline.tools.skills import HomeTools, ListTools, TimerTools
from pipeline.tools.toolbox import Tool
from server.commands.replay.trace_reader import RecordedToolCall

logger = logging.getLogger(__name__)

IN_PROCESS_PROVIDERS = (HomeTools, ListTools, TimerTools)
"Providers that only change things inside this process: demo house, lists and timers."

NOT_RUN = as_json(ToolOutcome({"message": "not run in a replay"}, error="not_run_in_replay"))
"Result for the model if a call has no recorded result."


class RecordedToolResults:
    """Recorded tool results of the session that is being replayed."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], deque[str]] = {}

    def begin(self, calls: Iterable[RecordedToolCall]) -> None:
        """Takes the recorded calls of the next session."""
        self._results.clear()
        for call in calls:
            key = call.name, _canonical(call.arguments)
            self._results.setdefault(key, deque()).append(call.output)

    def override(self, call: ToolCall, tool: Tool) -> str | None:
        """Returns the recorded result of the same call, as a `ToolOverride`. Each result is used
        once; without one, the result says that the tool was not run. Returns None for tools that
        only read and for tools of this process: these are really called."""
        if tool.spec.is_read_only or isinstance(tool.provider, IN_PROCESS_PROVIDERS):
            return None
        if outputs := self._results.get((call.name, _canonical(call.arguments))):
            return outputs.popleft()
        logger.warning("! replay: the tool %s was not run; --act allows it", call.name)
        return NOT_RUN


def _canonical(arguments: Mapping[str, object]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)
