// Keeps one call open. A lost call is opened again, after growing waits.

import { Refused } from "../server/api.js";
import { Call } from "./call.js";

const BACKOFF_MS = [300, 1_000, 2_000, 4_000, 8_000, 15_000]; // then every 15 s until it works or the user stops it
const JITTER = 0.3; // waits are up to this share longer, so that not all pages call a restarted server at once

/**
 * @typedef {"idle" | "connecting" | "open" | "reconnecting"} ConnectionState
 * @typedef {{ resolve: () => void, reject: (error: Refused) => void }} Waiting a caller of `open`
 * @typedef {object} Handlers
 * @property {() => object} describe returns the session object for a new call
 * @property {(event: any) => void} onEvent
 * @property {(state: ConnectionState) => void} onState
 * @property {(track: MediaStreamTrack) => void} onTrack
 * @property {(report: RTCStatsReport) => void} onStats
 * @property {(attempt: number) => void} onLost before each retry
 * @property {(refused: Refused) => void} onGivenUp after an answer of the server that makes further tries useless
 */

/**
 * One call at a time. State: idle -> connecting -> open -> reconnecting -> open, and idle again after
 * `close` or after a refusal.
 */
export class Connection {
  /** @type {Promise<void> | null} outcome of the first call, while connecting */
  #opening = null;
  /** @type {Waiting[]} callers that wait for the next try, while reconnecting */
  #waiting = [];
  /** Ends the present pause between two tries. Without effect at other times. */
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
   * Opens a call. Resolves when it is open; rejects with `Refused`. A second caller waits for the
   * same call. While reconnecting, a caller triggers the next try at once and waits for it; the
   * tries go on if it fails.
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

  /** Sends events in this order. Without an open call they are dropped. @param {...object} events */
  send(...events) {
    for (const event of events) this.call?.send(event);
  }

  /** Sends `track` from now on, in this call and in later ones. @param {MediaStreamTrack} track */
  async replaceTrack(track) {
    this.track = track;
    await this.call?.replaceTrack(track);
  }

  /** Makes the next try at once. For when it will probably work: the network or the server is back. */
  hurry() {
    this.#wake();
  }

  /** Gives up an open call over which nothing arrives. For when the server cannot be reached. */
  endIfSilent() {
    if (this.state === "open") this.call?.endIfSilent().catch(() => {}); // a closed call has no statistics
  }

  /** Hangs up and stops trying. */
  close() {
    const call = this.call;
    this.call = null;
    this.#opening = null;
    this.#setState("idle");
    this.hurry();
    call?.close();
    this.#settleWaiting(new Refused(0, "closed", ""));
  }

  /** Hangs up and calls again, for changes that a running session cannot make. */
  async restart() {
    if (this.state === "idle") return;
    if (this.state === "reconnecting") return this.hurry(); // the next call will use the new settings anyway
    this.close();
    await this.open(/** @type {MediaStreamTrack} */ (this.track));
  }

  /** Begins to connect. */
  #open() {
    this.#setState("connecting");
    const opening = this.#dial();
    this.#opening = opening;
    const settle = (/** @type {ConnectionState} */ state) => {
      if (this.#opening !== opening) return; // closed meanwhile, and perhaps opened again
      this.#opening = null;
      this.#setState(state);
    };
    opening.then(
      () => settle("open"),
      () => settle("idle"),
    );
  }

  /** Opens one call. If it fails, rejects with `Refused` and leaves nothing behind. */
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
    if (call.closed) throw call.endReason; // it was lost at the very moment it opened
  }

  /** Tries to open a new call until it works, the server refuses, or the user hangs up. */
  async #reconnect() {
    this.#setState("reconnecting");
    /** @type {number | null} */
    let retryAfterS = null;
    for (let attempt = 1; this.state === "reconnecting"; attempt += 1) {
      this.handlers.onLost(attempt);
      await this.#pause(attempt, retryAfterS);
      if (this.state !== "reconnecting") return;
      try {
        await this.#dial();
        if (this.state === "reconnecting") this.#setState("open");
        this.#settleWaiting(null);
        return;
      } catch (/** @type {any} */ error) {
        if (this.state !== "reconnecting") return;
        if (isPermanent(error)) {
          this.close();
          this.handlers.onGivenUp(error);
          return;
        }
        retryAfterS = error.retryAfterS;
        this.#settleWaiting(new Refused(0, "still_lost", ""));
      }
    }
  }

  /** Triggers the next try and returns its outcome. @returns {Promise<void>} */
  #nextTry() {
    /** @type {Promise<void>} */
    const outcome = new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
    this.hurry();
    return outcome;
  }

  /**
   * Reports the outcome of a try to the waiting callers. `error` is null if a call is open.
   *
   * @param {Refused | null} error
   */
  #settleWaiting(error) {
    for (const { resolve, reject } of this.#waiting.splice(0)) error ? reject(error) : resolve();
  }

  /**
   * Waits before a try.
   *
   * @param {number} attempt 1 for the first try
   * @param {number | null} retryAfterS the shortest wait that the server asked for, if any
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
  #setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.handlers.onState(state);
  }
}

/**
 * Returns whether another try would be refused again: the server found a fault in the request.
 *
 * @param {Refused} error
 */
const isPermanent = (error) => error.status >= 400 && error.status < 500 && error.status !== 429;
