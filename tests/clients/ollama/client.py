# mypy: ignore-errors
"""A user's program with Ollama's Python client. Run as `client.py URL`. Prints one JSON object."""

import json
import sys
from typing import Any

from ollama import Client, ResponseError

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_light",
            "description": "Turns a light on or off.",
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean"}},
                "required": ["on"],
            },
        },
    }
]

LIGHT = TOOLS[0]["function"]["parameters"]
HELLO = {"role": "user", "content": "hello"}

client = Client(host=sys.argv[1])
told: dict[str, Any] = {
    "models": [one.model for one in client.list().models],
    "can": client.show("assistant").capabilities,
}
question: dict[str, Any] = {"role": "user", "content": "the light, please"}
for model in told["models"]:
    called = client.chat(model=model, messages=[question], tools=TOOLS)
    result = {"role": "tool", "tool_name": "set_light", "content": '{"state": "on"}'}
    answer = client.chat(model=model, messages=[question, called.message, result], tools=TOOLS)
    stream = client.chat(model=model, messages=[{"role": "user", "content": "x"}], stream=True)
    told[model] = {
        "calls": [dict(one.function) for one in called.message.tool_calls],
        "tokens": called.eval_count,
        "answer": answer.message.content,
        "streamed": "".join(part.message.content for part in stream),
        "generated": client.generate(model=model, prompt="count").response,
        "held": json.loads(
            client.chat(model=model, messages=[HELLO], format=LIGHT).message.content
        ),
        "held, streamed": json.loads(
            "".join(
                part.message.content
                for part in client.chat(model=model, messages=[HELLO], format="json", stream=True)
            )
        ),
    }
try:
    client.chat(model="assistant", messages=[question], options={"seed": 3})
except ResponseError as error:
    told["refused"] = [error.status_code, error.error]

name = "all-minilm"
steps = list(client.pull(name, stream=True))
vectors = client.embed(name, input=["cat", "dog sits"])
told["embedder"] = {
    "steps": [steps[0].status, steps[-1].status],
    "is_whole": steps[-2].completed == steps[-2].total > 0,
    "again": client.pull(name).status,
    "can": client.show(name).capabilities,
    "vectors": [list(one) for one in vectors.embeddings],
    "tokens": vectors.prompt_eval_count,
    "older": list(client.embeddings(name, prompt="cat").embedding),
    "running": [one.model for one in client.ps().models],
    "deleted": client.delete(name).status,
    "left": [one.model for one in client.list().models],
}
try:
    client.embed(name, input="cat")
except ResponseError as error:
    told["embedder"]["refused"] = error.status_code
try:
    client.pull("tinny")
except ResponseError as error:
    told["embedder"]["unknown"] = error.error
print(json.dumps(told))
