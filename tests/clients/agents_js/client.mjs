// @openai/agents over its WebSocket transport, in Node. `node client.mjs URL CLIP`: prints JSON.
import { readFileSync } from 'node:fs';
import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents/realtime';
import { z } from 'zod';

const [url, clip] = process.argv.slice(2);
const WAV_HEADER_BYTES = 44;
const STEP_BYTES = 960; // 20 ms at 24 kHz
const TIMEOUT_MS = 30_000;

const called = [];
const kinds = [];
const errors = [];
const codes = [];
let audioBytes = 0;

const setLight = tool({
  name: 'set_light',
  description: 'Turns a light on or off.',
  parameters: z.object({ on: z.boolean() }),
  execute: async (given) => {
    called.push(given);
    return JSON.stringify({ state: 'on' });
  },
});
const agent = new RealtimeAgent({ name: 'Test', instructions: 'Be brief.', tools: [setLight] });
const session = new RealtimeSession(agent, { transport: 'websocket', model: 'gpt-realtime' });
session.transport.on('*', (event) => {
  kinds.push(event.type);
  if (event.type === 'error') codes.push(event.error.code);
});
session.on('error', (error) => errors.push(error));
session.on('audio', (event) => (audioBytes += event.data.byteLength));

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const count = (kind) => kinds.filter((one) => one === kind).length;

async function until(isSo, what) {
  const ends = Date.now() + TIMEOUT_MS;
  while (!isSo()) {
    if (Date.now() > ends) throw new Error(`no ${what}: ${kinds.slice(-20)} ${JSON.stringify(errors)}`);
    await pause(20);
  }
}

const said = () =>
  session.history
    .filter((item) => item.type === 'message' && item.role === 'assistant')
    .map((item) => item.content.map((part) => part.transcript ?? part.text ?? '').join(''));

await session.connect({
  apiKey: 'key',
  url: `${url.replace('http', 'ws')}/v1/realtime?model=gpt-realtime`,
});
session.sendMessage('light on please');
await until(() => count('response.done') === 2, 'answer to the result of the tool');
const written = said();

const sound = Buffer.concat([readFileSync(clip).subarray(WAV_HEADER_BYTES), Buffer.alloc(96_000)]);
for (let at = 0; at + STEP_BYTES <= sound.length; at += STEP_BYTES) {
  const step = sound.subarray(at, at + STEP_BYTES);
  session.sendAudio(step.buffer.slice(step.byteOffset, step.byteOffset + STEP_BYTES));
  await pause(20);
}
await until(() => count('response.done') === 4, 'answer to speech');
const calledBySpeech = called.length;

session.sendMessage('count');
await until(() => count('response.done') === 5, 'long answer');
await pause(1500); // it plays as fast as time passes
session.interrupt();
await until(() => !said().at(-1).includes('twelve'), 'shorter answer');
const cut = said().at(-1);
const before = errors.length;
session.transport.sendEvent({ type: 'nonsense' });
await until(() => errors.length > before, 'error');
session.close();
console.log(JSON.stringify({ called, calledBySpeech, written, audioBytes, cut, before, codes }));
process.exit(0);
