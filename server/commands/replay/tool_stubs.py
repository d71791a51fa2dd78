"""What answers in place of tools that change something: a replay is not to open a real garage."""

import json
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from core.ports import ToolOutcome
from engines.base import ToolCall
from pipeline.tools.catalogue import Tool
from pipeline.tools.results import as_json
from pipeline.tools.skills import HomeTools, ListTools, TimerTools
from server.commands.replay.trace_reader import RecordedToolCall

logger = logging.getLogger(__name__)

OWN = (HomeTools, ListTools, TimerTools)
"Providers whose world is this process's own and ends with it: demo house, list and timers."

NOT_RUN = as_json(ToolOutcome({"message": "not run in a replay"}, error="not_run_in_replay"))


class RecordedToolResults:
    """Of a run of replays, one session at a time."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], deque[str]] = {}

    def begin(self, called: Iterable[RecordedToolCall]) -> None:
        """A session begins whose tools answered this."""
        self._results.clear()
        for one in called:
            key = one.name, _canonical(one.arguments)
            self._results.setdefault(key, deque()).append(one.output)

    def instead(self, call: ToolCall, tool: Tool) -> str | None:
        """An `Instead`: the recorded result of the same call, each once; where there is none, that
        it was not run. Whoever only reads is called."""
        if tool.spec.is_read_only or isinstance(tool.provider, OWN):
            return None
        if waiting := self._results.get((call.name, _canonical(call.arguments))):
            return waiting.popleft()
        logger.warning("! replay: %s was not run; --act lets it", call.name)
        return NOT_RUN


def _canonical(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)
