// OpenAI's Node client at the Realtime door: node realtime.mjs URL CLIP CALL_ID. Prints JSON.
// Its WebSocket classes speak TLS only, whatever the base URL says.
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { OpenAIRealtimeWebSocket } from 'openai/realtime/websocket';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { WebSocket } from 'ws';

globalThis.WebSocket = WebSocket; // Node 20 has none, and a newer one's does not say why it failed

const [url, clip, callId] = process.argv.slice(2);
const WAV_HEADER_BYTES = 44;
const STEP_BYTES = 4800; // 100 ms at 24 kHz
const TIMEOUT_MS = 20_000;

const connect = (apiKey) => new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });
const client = connect('key');
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Talk {
  constructor(connection) {
    this.connection = connection;
    this.events = [];
    this.errors = [];
    connection.on('event', (event) => this.events.push(event));
    connection.on('error', (error) => this.errors.push(error));
  }

  send(type, fields = {}) {
    this.connection.send({ type, ...fields });
  }

  of(kind) {
    return this.events.filter((event) => event.type === kind);
  }

  async next(kind, act) {
    const before = this.of(kind).length;
    await act?.();
    await this.until(() => this.of(kind).length > before, kind);
    return this.of(kind).at(-1);
  }

  async until(isSo, what) {
    const ends = Date.now() + TIMEOUT_MS;
    while (!isSo()) {
      const kinds = this.events.map((event) => event.type).slice(-30);
      if (Date.now() > ends) throw new Error(`no ${what}: ${kinds} ${this.errors}`);
      await pause(10);
    }
  }

  async begun() {
    await this.until(() => this.of('session.created').length, 'session.created');
    return this.of('session.created')[0].session;
  }

  add(item) {
    return this.next('conversation.item.done', () => this.send('conversation.item.create', { item }));
  }

  async ask(text) {
    const content = [{ type: 'input_text', text }];
    await this.add({ type: 'message', role: 'user', content });
    return this.answer();
  }

  async answer() {
    const done = await this.next('response.done', () => this.send('response.create'));
    return done.response;
  }
}

const spoken = (response) => response.output[0].content[0].transcript;

async function callTool(talk) {
  const tool = {
    type: 'function',
    name: 'set_light',
    parameters: { type: 'object', properties: { on: { type: 'boolean' } }, required: ['on'] },
  };
  const session = { type: 'realtime', instructions: 'Be brief.', tools: [tool] };
  await talk.next('session.updated', () => talk.send('session.update', { session }));
  const asked = await talk.ask('light on please');
  const call = asked.output[1];
  const output = JSON.stringify({ state: 'on' });
  await talk.add({ type: 'function_call_output', call_id: call.call_id, output });
  const answered = await talk.answer();
  return { said: [spoken(asked), spoken(answered)], name: call.name, given: JSON.parse(call.arguments) };
}

async function speak(talk) {
  const sound = Buffer.concat([readFileSync(clip).subarray(WAV_HEADER_BYTES), Buffer.alloc(96_000)]);
  const heard = talk.next('conversation.item.input_audio_transcription.completed');
  const answered = talk.next('response.done');
  for (let at = 0; at < sound.length; at += STEP_BYTES) {
    const audio = sound.subarray(at, at + STEP_BYTES).toString('base64');
    talk.send('input_audio_buffer.append', { audio });
    await pause(20); // faster than speech
  }
  return { heard: (await heard).transcript, said: spoken((await answered).response) };
}

async function interrupt(talk) {
  const answered = talk.ask('never end');
  const { item_id } = await talk.next('response.output_audio.delta');
  const fields = { item_id, content_index: 0, audio_end_ms: 40 };
  await talk.next('conversation.item.truncated', () =>
    talk.send('conversation.item.truncate', fields),
  );
  talk.send('response.cancel');
  const { status, status_details: details, output } = await answered;
  return { status, reason: details.reason, item: output[0].status, said: spoken({ output }) };
}

async function fail(talk) {
  const before = talk.errors.length;
  talk.send('response.cancel', { event_id: 'late' });
  await talk.until(() => talk.errors.length > before, 'error');
  const { code, event_id: eventId } = talk.errors.at(-1).error;
  return { before, code, eventId };
}

async function withSecret() {
  const session = { type: 'realtime', model: 'gpt-realtime', instructions: 'Be a parrot.' };
  const expires = { anchor: 'created_at', seconds: 60 };
  const minted = await client.realtime.clientSecrets.create({ expires_after: expires, session });
  const made = new OpenAIRealtimeWebSocket({ model: 'gpt-realtime' }, connect(minted.value));
  const begun = await new Talk(made).begun();
  made.close();
  const bad = new Talk(new OpenAIRealtimeWebSocket({ model: 'gpt-realtime' }, connect('ek_none')));
  await bad.until(() => bad.errors.length, 'refusal');
  return {
    prefix: minted.value.slice(0, 3),
    seconds: minted.expires_at - Date.now() / 1000,
    minted: minted.session.instructions,
    begun: begun.instructions,
    refused: bad.errors[0].message,
  };
}

async function besideCall() {
  const { calls } = client.realtime;
  const talk = new Talk(new OpenAIRealtimeWS({ callID: callId }, client));
  await talk.begun();
  const said = spoken(await talk.ask('count'));
  const closed = new Promise((resolve) => talk.connection.socket.on('close', resolve));
  await calls.hangup(callId);
  await closed;
  const again = await calls.hangup(callId).catch((error) => error);
  const sip = await calls.accept(callId, { type: 'realtime' }).catch((error) => error);
  return {
    said,
    again: [again instanceof OpenAI.NotFoundError, again.code],
    sip: sip instanceof OpenAI.NotFoundError,
  };
}

const talk = new Talk(new OpenAIRealtimeWS({ model: 'gpt-realtime' }, client));
await talk.begun();
const told = {
  tool: await callTool(talk),
  speech: await speak(talk),
  interrupted: await interrupt(talk),
  error: await fail(talk),
};
talk.connection.close();
told.secret = await withSecret();
told.call = await besideCall();
console.log(JSON.stringify(told));
process.exit(0);
