"""An answer's text as the language model writes it, its tools run in between."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from core.errors import EngineError
from core.ids import new_id
from core.items import FunctionCallItem, FunctionOutputItem
from core.ports import ToolContext
from engines.base import Llm, TextDelta, ToolCall
from pipeline.history import History
from pipeline.tools import Toolbox

MAX_TOOL_ROUNDS = 6
"A model that calls tools forever is stopped here."


async def generate(
    llm: Llm, history: History, instructions: str, toolbox: Toolbox, context: ToolContext
) -> AsyncGenerator[str, None]:
    """Deltas; calls and results go into the history. Raises EngineError, also when the model calls
    tools without end."""
    for _ in range(MAX_TOOL_ROUNDS):
        calls: list[ToolCall] = []
        messages = history.messages(instructions)
        reply = llm.reply(messages, toolbox.specs(context), language=context.language)
        async with aclosing(reply) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text=text):
                        yield text
                    case ToolCall():
                        calls.append(delta)
        if not calls:
            return
        results = await toolbox.run(calls, context)
        for call, result in zip(calls, results, strict=True):
            arguments = json.dumps(dict(call.arguments))
            made = FunctionCallItem(new_id("item"), call.call_id, call.name, arguments)
            output = FunctionOutputItem(new_id("item"), call.call_id, result)
            history.add(made, is_internal=True)
            history.add(output, is_internal=True)
    raise EngineError("llm", llm.name, f"{MAX_TOOL_ROUNDS} rounds of tools without an answer")
