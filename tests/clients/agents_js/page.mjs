// @openai/agents over its WebRTC transport, in a browser: its own bundle, as a page loads it.
import {
  OpenAIRealtimeWebRTC,
  RealtimeAgent,
  RealtimeSession,
  tool,
} from './node_modules/@openai/agents-realtime/dist/bundle/openai-realtime-agents.mjs';

const TIMEOUT_MS = 30_000;
const HEARD_MS = 1500;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Call {
  constructor(url, apiKey) {
    this.called = [];
    this.events = [];
    this.errors = [];
    this.transport = new OpenAIRealtimeWebRTC({ baseUrl: `${url}/v1/realtime/calls` });
    const agent = new RealtimeAgent({ name: 'Test', instructions: 'Be brief.', tools: [this.light()] });
    this.session = new RealtimeSession(agent, { transport: this.transport, model: 'gpt-realtime' });
    this.transport.on('*', (event) => this.events.push(event));
    this.session.on('error', (error) => this.errors.push(error));
    this.apiKey = apiKey;
  }

  light() {
    return tool({
      name: 'set_light',
      description: 'Turns a light on or off.',
      parameters: {
        type: 'object',
        properties: { on: { type: 'boolean' } },
        required: ['on'],
        additionalProperties: false,
      },
      strict: true,
      execute: async (given) => {
        this.called.push(given);
        return JSON.stringify({ state: 'on' });
      },
    });
  }

  connect() {
    return this.session.connect({ apiKey: this.apiKey });
  }

  of(kind) {
    return this.events.filter((event) => event.type === kind);
  }

  said(role = 'assistant') {
    return this.session.history
      .filter((item) => item.type === 'message' && item.role === role)
      .map((item) => item.content.map((part) => part.transcript ?? part.text ?? '').join(''));
  }

  // The last one of this kind, when so many of them have come since `act`.
  async next(kind, act, more = 1) {
    const wanted = this.of(kind).length + more;
    await act?.();
    await this.until(() => this.of(kind).length >= wanted, `${more} of ${kind}`);
    return this.of(kind).at(-1);
  }

  async until(isSo, what) {
    const ends = Date.now() + TIMEOUT_MS;
    while (!isSo()) {
      if (Date.now() > ends) {
        const kinds = this.events.map((event) => event.type).slice(-30);
        throw new Error(`no ${what}: ${kinds} ${JSON.stringify([this.errors, this.said()])}`);
      }
      await pause(20);
    }
  }

  // Speak again: a microphone that is opened anew plays its recording from the beginning.
  async speak() {
    const [sender] = this.transport.connectionState.peerConnection.getSenders();
    sender.track.stop();
    const fresh = await navigator.mediaDevices.getUserMedia({ audio: true });
    await sender.replaceTrack(fresh.getAudioTracks()[0]);
  }

  async energy() {
    const report = await this.transport.connectionState.peerConnection.getStats();
    const received = [...report.values()].filter((one) => one.type === 'inbound-rtp');
    return received.reduce((sum, one) => sum + (one.totalAudioEnergy ?? 0), 0);
  }
}

async function refusal(url, apiKey) {
  return new Call(url, apiKey).connect().then(
    () => '',
    (error) => error.message,
  );
}

window.run = async (url, apiKey) => {
  const told = { refused: await refusal(url, 'ek_of_nobody') };
  const call = new Call(url, apiKey);
  await call.connect();
  told.callId = call.transport.callId;

  // The microphone speaks once, from when it was opened.
  await call.next('output_audio_buffer.stopped', undefined, 2);
  told.instructions = call.of('session.updated').at(-1).session.instructions;
  told.heard = call.said('user');
  told.bySpeech = call.said();
  told.energy = await call.energy();

  await call.next('output_audio_buffer.stopped', () => call.session.sendMessage('light on please'), 2);
  told.byText = call.said().slice(2);

  await call.next('output_audio_buffer.started', () => call.session.sendMessage('count'));
  await pause(HEARD_MS);
  const whole = call.said().at(-1);
  await call.next('output_audio_buffer.cleared', () => call.session.interrupt());
  await call.until(() => call.said().at(-1) !== whole, 'shorter answer');
  told.stopped = call.said().at(-1);

  await call.speak(); // its recording begins with a pause: an answer is played by then
  await call.next('output_audio_buffer.started', () => call.session.sendMessage('count on'));
  const answer = call.of('response.created').at(-1).response.id;
  const cleared = await call.next('output_audio_buffer.cleared');
  await call.next('output_audio_buffer.stopped', undefined, 2);
  told.spokenOver = { isThatAnswer: cleared.response_id === answer, said: call.said().slice(-3) };
  told.called = call.called;

  told.before = call.errors.length;
  await call.next('error', () => call.transport.sendEvent({ type: 'nonsense' }));
  told.error = call.of('error').at(-1).error.code;
  told.errors = call.errors.length;
  await call.next('session.updated', () => call.transport.updateSessionConfig({}));
  call.session.close();
  told.status = call.transport.status;
  return told;
};
