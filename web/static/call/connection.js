// Keeps one call alive: opens it when needed, and again, with growing patience, when it is lost.

import { Refused } from "../server/api.js";
import { Call } from "./call.js";

const BACKOFF_MS = [300, 1_000, 2_000, 4_000, 8_000, 15_000]; // then every 15 s, for as long as wanted
const JITTER = 0.3; // a restarted server should not meet all its pages in the same moment

/**
 * @typedef {"idle" | "connecting" | "open" | "reconnecting"} ConnectionState
 * @typedef {{ resolve: () => void, reject: (error: Refused) => void }} Waiting
 * @typedef {object} Handlers
 * @property {() => object} describe gives the session object for each new call
 * @property {(event: any) => void} onEvent
 * @property {(state: ConnectionState) => void} onState
 * @property {(track: MediaStreamTrack) => void} onTrack
 * @property {(report: RTCStatsReport) => void} onStats
 * @property {(attempt: number) => void} onLost before each retry
 * @property {(refused: Refused) => void} onGivenUp the server's answer says that trying again is useless
 */

export class Connection {
  /** @type {Promise<void> | null} the first call, while connecting */
  #opening = null;
  /** @type {Waiting[]} callers that wait for the next try, while reconnecting */
  #waiting = [];
  /** Ends the pause before the next try. */
  #wake = () => {};

  /** @param {Handlers} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {ConnectionState} */
    this.state = "idle";
    /** @type {Call | null} */
    this.call = null;
    /** @type {MediaStreamTrack | null} */
    this.track = null;
    addEventListener("online", () => this.hurry());
  }

  /**
   * Resolves when open; rejects with `Refused`. A second caller waits for the first one's call; while
   * reconnecting, a caller waits for the next try, which comes at once, and the tries go on if it fails.
   *
   * @param {MediaStreamTrack} track
   */
  async open(track) {
    this.track = track;
    if (this.state === "open") return this.replaceTrack(track);
    if (this.state === "reconnecting") return this.#nextTry();
    if (this.state === "idle") this.#open();
    return this.#opening;
  }

  /** @param {...object} events */
  send(...events) {
    for (const event of events) this.call?.send(event);
  }

  /** @param {MediaStreamTrack} track */
  async replaceTrack(track) {
    this.track = track;
    await this.call?.replaceTrack(track);
  }

  /** The next try need not wait: there is reason to think that it will work. */
  hurry() {
    this.#wake();
  }

  /** The server cannot be reached any more: a call that has become silent is lost with it. */
  suspect() {
    if (this.state === "open") this.call?.suspect().catch(() => {}); // no statistics of a closed call
  }

  /** Hangs up and stops trying. */
  close() {
    const call = this.call;
    this.call = null;
    this.#opening = null;
    this.#become("idle");
    this.hurry();
    call?.close();
    this.#tried(new Refused(0, "closed", ""));
  }

  /** Hangs up and calls again, for what a running session cannot change. */
  async restart() {
    if (this.state === "idle") return;
    if (this.state === "reconnecting") return this.hurry(); // the next call asks for what is wanted then
    this.close();
    await this.open(/** @type {MediaStreamTrack} */ (this.track));
  }

  #open() {
    this.#become("connecting");
    const opening = this.#dial();
    this.#opening = opening;
    const settle = (/** @type {ConnectionState} */ state) => {
      if (this.#opening !== opening) return; // closed since, and perhaps opened again
      this.#opening = null;
      this.#become(state);
    };
    opening.then(
      () => settle("open"),
      () => settle("idle"),
    );
  }

  /** One call, open; rejects with `Refused`, and then nothing of it is left. */
  async #dial() {
    this.call?.close();
    const call = new Call({
      onEvent: (event) => this.call === call && this.handlers.onEvent(event),
      onTrack: (track) => this.call === call && this.handlers.onTrack(track),
      onStats: (report) => this.call === call && this.handlers.onStats(report),
      onLost: () => this.call === call && this.state === "open" && this.#reconnect(),
    });
    this.call = call;
    const track = /** @type {MediaStreamTrack} */ (this.track);
    await call.start(track, this.handlers.describe());
    if (this.track !== track) await call.replaceTrack(/** @type {MediaStreamTrack} */ (this.track));
    if (call.closed) throw call.ending; // in the moment since it opened
  }

  async #reconnect() {
    this.#become("reconnecting");
    /** @type {number | null} */
    let retryAfterS = null;
    for (let attempt = 1; this.state === "reconnecting"; attempt += 1) {
      this.handlers.onLost(attempt);
      await this.#pause(attempt, retryAfterS);
      if (this.state !== "reconnecting") return;
      try {
        await this.#dial();
        if (this.state === "reconnecting") this.#become("open");
        this.#tried(null);
        return;
      } catch (/** @type {any} */ error) {
        if (this.state !== "reconnecting") return;
        if (isHopeless(error)) {
          this.close();
          this.handlers.onGivenUp(error);
          return;
        }
        retryAfterS = error.retryAfterS;
        this.#tried(new Refused(0, "still_lost", ""));
      }
    }
  }

  /** @returns {Promise<void>} */
  #nextTry() {
    /** @type {Promise<void>} */
    const outcome = new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
    this.hurry();
    return outcome;
  }

  /**
   * Tells the waiting callers how the try went; `error` is null when a call is open.
   *
   * @param {Refused | null} error
   */
  #tried(error) {
    for (const { resolve, reject } of this.#waiting.splice(0)) error ? reject(error) : resolve();
  }

  /**
   * @param {number} attempt
   * @param {number | null} retryAfterS
   * @returns {Promise<void>}
   */
  #pause(attempt, retryAfterS) {
    const base = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length) - 1];
    const wait = Math.max(base * (1 + JITTER * Math.random()), (retryAfterS ?? 0) * 1_000);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** @param {ConnectionState} state */
  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.handlers.onState(state);
  }
}

/** @param {Refused} error */
const isHopeless = (error) => error.status >= 400 && error.status < 500 && error.status !== 429;
