// One text while it is spoken: it waits until the server has room, comes in, and is heard. How long each
// of that took is measured here, where the user waits.

import { bytesOf, pause, Refused } from "../server/api.js";
import { Player } from "./player.js";
import { Sound, SLICE_SAMPLES } from "./sound.js";

const PATH = "/v1/audio/speech";
const PIECE_MS = 60_000; // longest wait for the first or the next piece; a model may have to load first
const MAX_TRIES = 30; // the server names the time between two of them

/**
 * @typedef {"waiting" | "full" | "speaking" | "spoken" | "stopped" | "failed"} ReadingState
 *   waiting: for the first sound; full: the server speaks as many texts as it can, and is asked again
 * @typedef {{ input: string, voice: string, speed: number, language?: string }} Wanted fields of the
 *   request
 */

export class Reading {
  /** @type {ReadingState} */
  state = "waiting";
  /** Time until the next try, in seconds; while the state is `full`. */
  againS = 0;
  sound = new Sound();
  /** @type {Refused | null} */
  error = null;
  /** Time for which the server had no room. */
  waitedMs = 0;
  /** @type {number | null} time from the request that was answered to its first samples */
  firstMs = null;
  /** @type {number | null} time from that request to its last samples; null: the sound is not whole */
  wholeMs = null;
  #aborter = new AbortController();

  /**
   * @param {AudioContext} context at the rate of the sound
   * @param {Wanted} wanted
   * @param {() => void} onChange called when anything but `sound` has changed
   */
  constructor(context, wanted, onChange) {
    this.player = new Player(context);
    this.wanted = wanted;
    this.onChange = onChange;
  }

  get isOver() {
    return ["spoken", "stopped", "failed"].includes(this.state);
  }

  get isWhole() {
    return this.wholeMs !== null;
  }

  /** Words of the text, counted as the server does for clients of Indri. */
  get words() {
    return this.wanted.input.split(/\s+/).filter(Boolean).length;
  }

  /** Number of whole levels of the sound that were heard. */
  get heardLevels() {
    const isAll = this.state === "spoken";
    return isAll ? this.sound.levels.length : Math.floor(this.player.heard / SLICE_SAMPLES);
  }

  /** Speaks the text to its end. Failures are a state, too. */
  async run() {
    try {
      await this.#readWhenThereIsRoom();
      await this.player.finish();
      if (!this.isOver) this.#become("spoken");
    } catch (/** @type {any} */ error) {
      if (this.isOver) return; // stopped
      this.player.stop();
      this.error = error;
      this.#become("failed");
    }
  }

  /** Ends the sound and the request at once. */
  stop() {
    if (this.isOver) return;
    this.#become("stopped");
    this.#aborter.abort(new Refused(0, "stopped", ""));
    this.player.stop();
  }

  async #readWhenThereIsRoom() {
    const beganMs = performance.now();
    for (let tries = 1; ; tries += 1) {
      const askedMs = performance.now();
      this.waitedMs = tries === 1 ? 0 : askedMs - beganMs;
      try {
        return await this.#read(askedMs);
      } catch (/** @type {any} */ error) {
        if (!isFull(error) || tries === MAX_TRIES) throw error;
        await this.#wait(error.retryAfterS);
      }
    }
  }

  /** @param {number} askedMs time of the request */
  async #read(askedMs) {
    const body = JSON.stringify({ model: "default", response_format: "pcm", ...this.wanted });
    const headers = { "Content-Type": "application/json" };
    const { signal } = this.#aborter;
    const asked = { method: "POST", headers, body, signal, limitMs: PIECE_MS };
    for await (const bytes of bytesOf(PATH, asked)) {
      this.player.push(this.sound.push(bytes));
      if (this.firstMs !== null) continue;
      this.firstMs = performance.now() - askedMs;
      this.#become("speaking");
    }
    this.wholeMs = performance.now() - askedMs;
    this.onChange();
  }

  /** @param {number} seconds */
  async #wait(seconds) {
    const { signal } = this.#aborter;
    for (let leftS = seconds; leftS > 0; leftS -= 1) {
      this.againS = leftS;
      this.#become("full");
      await pause(1_000, signal);
      signal.throwIfAborted();
    }
    this.#become("waiting");
  }

  /** @param {ReadingState} state */
  #become(state) {
    this.state = state;
    this.onChange();
  }
}

/** Returns whether the server may have room later. @param {any} error */
const isFull = ({ status, retryAfterS }) =>
  (status === 429 || status === 503) && retryAfterS !== null && retryAfterS !== undefined;
