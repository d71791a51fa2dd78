// Plays pieces of one sound without gaps while they come in, and knows how much of it was heard.

import { RATE_HZ } from "./sound.js";

// The first piece waits this long, so that the next one can be late; also after each pause.
const LEAD_S = 0.1;

export class Player {
  /** Number of times that the next piece came too late. */
  pauses = 0;
  /** @type {{ start: number, from: number, samples: number }[]} `start`: sample of the context's clock at
   *   which a piece begins; `from`: its first sample in the sound */
  #pieces = [];
  /** @type {Set<AudioBufferSourceNode>} */
  #sources = new Set();
  /** Sample of the context's clock at which everything so far is over. */
  #end = 0;
  /** @type {() => void} */
  #over = () => undefined;
  #isWhole = false;

  /** @param {AudioContext} context at `RATE_HZ`, so that pieces meet at a sample */
  constructor(context) {
    this.context = context;
  }

  /** Plays these samples after those before. @param {Int16Array} piece */
  push(piece) {
    if (!piece.length) return;
    const buffer = this.context.createBuffer(1, piece.length, RATE_HZ);
    buffer.copyToChannel(
      Float32Array.from(piece, (sample) => sample / 32_768),
      0,
    );
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.start(this.#place(piece.length) / RATE_HZ);
    this.#sources.add(source);
    source.addEventListener("ended", () => this.#ended(source));
  }

  /** Number of samples of the sound that were heard. */
  get heard() {
    const now = this.context.currentTime * RATE_HZ;
    const piece = this.#pieces.findLast(({ start }) => start <= now);
    return piece ? piece.from + Math.min(now - piece.start, piece.samples) : 0;
  }

  /** Returns when the last piece, which was pushed before, was heard or stopped. */
  async finish() {
    this.#isWhole = true;
    if (!this.#sources.size) return;
    await /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        this.#over = resolve;
      })
    );
  }

  /** Ends at once. */
  stop() {
    for (const source of this.#sources) source.stop();
    this.#sources.clear();
    this.#over();
  }

  /** Returns the sample of the context's clock at which the next piece begins. @param {number} samples of it */
  #place(samples) {
    const last = this.#pieces.at(-1);
    const now = this.context.currentTime;
    if (this.#end < now * RATE_HZ) {
      if (last) this.pauses += 1;
      this.#end = Math.ceil((now + LEAD_S) * RATE_HZ);
    }
    const start = this.#end;
    this.#pieces.push({ start, from: last ? last.from + last.samples : 0, samples });
    this.#end += samples;
    return start;
  }

  /** @param {AudioBufferSourceNode} source */
  #ended(source) {
    this.#sources.delete(source);
    if (this.#isWhole && !this.#sources.size) this.#over();
  }
}
