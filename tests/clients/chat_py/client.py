# mypy: ignore-errors
"""Programs of users with chat clients for Python. Run as `client.py URL`. Prints one JSON object.

Each client streams an answer, has its tool called, and says its result, as far as it can.
"""

import json
import subprocess
import sys
from pathlib import Path

import instructor
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = sys.argv[1]
BASE_URL = f"{URL}/v1"
EMBEDDER = "tiny-embedder"
QUESTION = "the light, please"


@tool
def set_light(on: bool) -> str:
    """Turns a light on or off."""
    return json.dumps({"state": "on" if on else "off"})


def langchain(chat):
    """Returns what LangChain streamed, called and answered."""
    model = chat.bind_tools([set_light])
    question = HumanMessage(QUESTION)
    called = model.invoke([question])
    results = [
        ToolMessage(set_light.invoke(call["args"]), tool_call_id=call["id"])
        for call in called.tool_calls
    ]
    return {
        "streamed": "".join(part.text for part in chat.stream("count")),
        "calls": [call["args"] for call in called.tool_calls],
        "answer": model.invoke([question, called, *results]).text,
    }


def pydantic_ai(kind):
    """Returns what an agent of Pydantic AI streamed, called and answered."""
    provider = OpenAIProvider(base_url=BASE_URL, api_key="none")
    calls = []
    agent = Agent(kind("assistant", provider=provider))

    @agent.tool_plain(name="set_light")
    def switch(on: bool) -> dict[str, str]:
        """Turns a light on or off."""
        calls.append({"on": on})
        return {"state": "on"}

    answer = agent.run_sync(QUESTION).output
    with agent.run_stream_sync("count") as run:
        streamed = "".join(run.stream_text(delta=True))
    return {"streamed": streamed, "calls": calls, "answer": answer}


class SetLight(BaseModel):
    """Turns a light on or off."""

    model_config = {"title": "set_light"}
    on: bool


SetLight.__name__ = "set_light"


def structured():
    """Returns what Instructor made of the call of a tool, by both modes that use tools."""
    client = instructor.from_openai(OpenAI(base_url=BASE_URL, api_key="none"))
    ask = {"model": "assistant", "messages": [{"role": "user", "content": QUESTION}]}
    return client.chat.completions.create(response_model=SetLight, **ask).model_dump()


class Light(BaseModel):
    """State of a light."""

    on: bool


def held():
    """Returns what clients made of answers that follow a schema."""
    client = OpenAI(base_url=BASE_URL, api_key="none")
    ask = {"model": "assistant", "messages": [{"role": "user", "content": "count"}]}
    by_instructor = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    pydantic_ai_model = OpenAIChatModel(
        "assistant", provider=OpenAIProvider(base_url=BASE_URL, api_key="none")
    )
    agent = Agent(pydantic_ai_model, output_type=NativeOutput(Light))
    chat = ChatOpenAI(model="assistant", base_url=BASE_URL, api_key="none")
    ollama = ChatOllama(model="assistant", base_url=URL)
    return {
        "openai": client.chat.completions.parse(**ask, response_format=Light)
        .choices[0]
        .message.parsed.on,
        "openai, Responses": client.responses.parse(
            model="assistant", input="count", text_format=Light
        ).output_parsed.on,
        "instructor": by_instructor.chat.completions.create(response_model=Light, **ask).on,
        "pydantic-ai": agent.run_sync("count").output.on,
        "langchain-openai": chat.with_structured_output(Light).invoke("count").on,
        "langchain-ollama": ollama.with_structured_output(Light).invoke("count").on,
    }


def llm_program():
    """Returns what the command `llm` printed, with a model that a user's file declares."""
    folder = Path("llm")
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: house\n  model_name: assistant\n  api_base: {BASE_URL}\n"
        f"  supports_tools: true\n"
    )
    (folder / "light.py").write_text(
        'def set_light(on: bool) -> dict:\n    "Turns a light."\n    return {"state": "on"}\n'
    )
    program = [str(Path(sys.executable).with_name("llm")), "-m", "house", "--key", "none"]
    environment = {"LLM_USER_PATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    said = [
        subprocess.run(
            [*program, *more], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        for more in (["count"], ["--functions", str(folder / "light.py"), QUESTION])
    ]
    return {"streamed": said[0], "answer": said[1]}


openai = {"model": "assistant", "base_url": BASE_URL, "api_key": "none"}
texts = ["cat", "dog sits"]
vectors = OpenAIEmbeddings(
    model=EMBEDDER, base_url=BASE_URL, api_key="none", check_embedding_ctx_length=False
)
print(
    json.dumps(
        {
            "langchain-openai": langchain(ChatOpenAI(**openai)),
            "langchain-openai, Responses": langchain(ChatOpenAI(**openai, use_responses_api=True)),
            "langchain-ollama": langchain(ChatOllama(model="assistant", base_url=URL)),
            "pydantic-ai": pydantic_ai(OpenAIChatModel),
            "pydantic-ai, Responses": pydantic_ai(OpenAIResponsesModel),
            "llm": llm_program(),
            "instructor": structured(),
            "held": held(),
            "vectors": {
                "langchain-openai": vectors.embed_documents(texts),
                "langchain-ollama": OllamaEmbeddings(model=EMBEDDER, base_url=URL).embed_documents(
                    texts
                ),
            },
        }
    )
)
