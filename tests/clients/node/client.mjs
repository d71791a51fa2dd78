// A user's program with OpenAI's Node client: node client.mjs URL FILE. Prints one JSON object.
import { createReadStream } from "node:fs";
import { File } from "node:buffer";
import OpenAI from "openai";

globalThis.File ??= File; // Node 18 has it, but not as a global

const [url, path] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "key", baseURL: `${url}/v1`, maxRetries: 0 });
const ask = (options) =>
  client.audio.transcriptions.create({
    model: "whisper-1",
    file: createReadStream(path),
    ...options,
  });

const plain = await ask({ language: "en" });
const verbose = await ask({
  response_format: "verbose_json",
  timestamp_granularities: ["segment"],
});
const subtitles = await ask({ response_format: "vtt" });

const deltas = [];
let done;
for await (const event of await ask({ stream: true })) {
  if (event.type === "transcript.text.delta") deltas.push(event.delta);
  if (event.type === "transcript.text.done") done = event;
}

const say = (options) =>
  client.audio.speech.create({
    model: "gpt-4o-mini-tts",
    voice: "alloy",
    input: "Turn on the kitchen light.",
    ...options,
  });

const spoken = await say({ response_format: "wav" });
const heard = await client.audio.transcriptions.create({
  model: "whisper-1",
  language: "en",
  file: new File([Buffer.from(await spoken.arrayBuffer())], "spoken.wav"),
});
let pcmBytes = 0;
const stream = await say({ response_format: "pcm", voice: { id: "de" }, speed: 2 });
for await (const chunk of stream.body) pcmBytes += chunk.length;
const tooLong = await say({ input: "x".repeat(5000) }).catch((error) => error);

const failure = await ask({ model: "parrot" }).catch((error) => error);
const models = await client.models.list();

const question = { role: "user", content: "turn on the kitchen light" };
const chat = await client.chat.completions.create({ model: "assistant", messages: [question] });
let streamed = "";
for await (const chunk of await client.chat.completions.create({
  model: "assistant",
  messages: [question],
  stream: true,
}))
  streamed += chunk.choices[0]?.delta?.content ?? "";
const response = await client.responses.create({ model: "assistant", input: question.content });
const kinds = [];
for await (const event of await client.responses.create({
  model: "assistant",
  input: question.content,
  previous_response_id: response.id,
  stream: true,
}))
  kinds.push(event.type);

console.log(
  JSON.stringify({
    chat: [chat.choices[0].message.content, streamed, response.output_text],
    kinds,
    plain,
    verbose,
    subtitles,
    deltas,
    done,
    failure: {
      isNotFound: failure instanceof OpenAI.NotFoundError,
      status: failure.status,
      code: failure.code,
      param: failure.param,
    },
    speech: {
      contentType: spoken.headers.get("content-type"),
      heard: heard.text,
      pcmBytes,
      tooLong: {
        isBadRequest: tooLong instanceof OpenAI.BadRequestError,
        code: tooLong.code,
        param: tooLong.param,
      },
    },
    models: models.data.map((model) => model.id),
  }),
);
