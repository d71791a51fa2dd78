// Programs of users with chat clients for Node. Run as: node client.mjs URL FILE. FILE is a WAV.
// Prints one JSON object: what each client was told.
import { readFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  embedMany,
  experimental_generateSpeech as generateSpeech,
  experimental_transcribe as transcribe,
  generateText,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import { Ollama } from "ollama";
import { z } from "zod";

const [url, path] = process.argv.slice(2);
const question = "the light, please";
const texts = ["cat", "dog sits"];

/** Returns what the AI SDK streamed, called and answered with this model. */
async function sdk(model) {
  let streamed = "";
  for await (const part of streamText({ model, prompt: "count" }).textStream) streamed += part;
  const calls = [];
  const set_light = tool({
    description: "Turns a light on or off.",
    inputSchema: z.object({ on: z.boolean() }),
    execute: (input) => {
      calls.push(input);
      return { state: "on" };
    },
  });
  const { text } = await generateText({
    model,
    prompt: question,
    tools: { set_light },
    stopWhen: stepCountIs(3),
  });
  return { streamed, calls, answer: text };
}

/** Returns the same of Ollama's client. */
async function ollama(client) {
  const model = "assistant";
  const ask = { role: "user", content: question };
  const set_light = {
    type: "function",
    function: {
      name: "set_light",
      description: "Turns a light on or off.",
      parameters: { type: "object", properties: { on: { type: "boolean" } }, required: ["on"] },
    },
  };
  let streamed = "";
  const stream = await client.chat({
    model,
    messages: [{ role: "user", content: "count" }],
    stream: true,
  });
  for await (const part of stream) streamed += part.message.content;
  const { message } = await client.chat({ model, messages: [ask], tools: [set_light] });
  const result = { role: "tool", tool_name: "set_light", content: '{"state": "on"}' };
  const last = await client.chat({ model, messages: [ask, message, result], tools: [set_light] });
  const calls = message.tool_calls.map((call) => call.function.arguments);
  return { streamed, calls, answer: last.message.content };
}

/** Returns what the SDK of MCP was told: names of tools and what a call gave. */
async function mcp() {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`)));
  const { tools } = await client.listTools();
  const added = await client.callTool({ name: "HassStartTimer", arguments: { minutes: 10 } });
  await client.close();
  return { names: tools.map((one) => one.name), server: client.getServerVersion().name, ...added.structuredContent };
}

const compatible = createOpenAICompatible({ name: "house", baseURL: `${url}/v1` });
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const local = new Ollama({ host: url });
const vectors = await embedMany({
  model: compatible.embeddingModel("tiny-embedder"),
  values: texts,
});
const heard = await transcribe({
  model: openai.transcription("whisper-1"),
  audio: await readFile(path),
});
const speech = await generateSpeech({
  model: openai.speech("tts-1"),
  text: "Turn on the kitchen light.",
  outputFormat: "wav",
});
const told = {
  "@ai-sdk/openai-compatible": await sdk(compatible("assistant")),
  "@ai-sdk/openai, Responses": await sdk(openai("assistant")),
  "@ai-sdk/openai, chat": await sdk(openai.chat("assistant")),
  ollama: await ollama(local),
  mcp: await mcp(),
  vectors: {
    "@ai-sdk/openai-compatible": vectors.embeddings,
    ollama: (await local.embed({ model: "tiny-embedder", input: texts })).embeddings,
  },
  heard: heard.text,
  speechBytes: speech.audio.uint8Array.length,
};
console.log(JSON.stringify(told));
