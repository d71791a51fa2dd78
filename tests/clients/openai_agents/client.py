# mypy: ignore-errors
"""A user's program with OpenAI's agents and their default model class.

Run as `client.py URL`. Prints one JSON object.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

called: list[bool] = []


@function_tool
def set_light(on: bool) -> str:
    """Turns a light on or off."""
    called.append(on)
    return json.dumps({"state": "on"})


async def main(url: str) -> None:
    """Asks each model three times: with a tool, in the same conversation, and in a stream."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(api_key="key", base_url=f"{url}/v1", max_retries=0)
    told: dict[str, Any] = {}
    for model in ("assistant", "default"):
        agent = Agent(
            name="house",
            instructions="Be brief.",
            tools=[set_light],
            model=OpenAIResponsesModel(model, client),
        )
        first = await Runner.run(agent, "the light, please")
        again = [*first.to_input_list(), {"role": "user", "content": "count"}]
        second = await Runner.run(agent, again)
        streamed = Runner.run_streamed(agent, "the light, please")
        async for _ in streamed.stream_events():
            pass
        told[model] = [first.final_output, second.final_output, streamed.final_output]
    print(json.dumps({**told, "called": called}))


asyncio.run(main(sys.argv[1]))
