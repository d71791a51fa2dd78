// Keeps one call alive: opens it when needed, and again, with growing patience, when it is lost.

import { Refused } from "../server/api.js";
import { Call } from "./call.js";

const BACKOFF_MS = [300, 1_000, 2_000, 4_000, 8_000, 15_000]; // then every 15 s, for as long as wanted
const JITTER = 0.3; // a restarted server should not meet all its pages in the same moment

/**
 * state: idle | connecting | open | reconnecting.
 * `describe()` gives the session object for each new call. `onLost(attempt)` before each retry;
 * `onGivenUp(refused)` when the server's answer says that trying again is useless.
 */
export class Connection {
  constructor({ describe, onEvent, onState, onTrack, onStats, onLost, onGivenUp }) {
    Object.assign(this, { describe, onEvent, onState, onTrack, onStats, onLost, onGivenUp });
    this.state = "idle";
    this.call = null;
    this.track = null;
    this.opening = null; // the promise of the first call, while connecting
    this.waiting = []; // who waits for the next try, while reconnecting
    addEventListener("online", () => this.hurry());
  }

  /**
   * Resolves when open; rejects with `Refused`. A second caller waits for the first one's call; while
   * reconnecting, a caller waits for the next try, which comes at once, and the tries go on if it fails.
   */
  async open(track) {
    this.track = track;
    if (this.state === "open") return this.replaceTrack(track);
    if (this.state === "reconnecting") return this.#nextTry();
    if (this.state === "idle") this.#open();
    return this.opening;
  }

  send(...events) {
    for (const event of events) this.call?.send(event);
  }

  async replaceTrack(track) {
    this.track = track;
    await this.call?.replaceTrack(track);
  }

  /** The next try need not wait: there is reason to think that it will work. */
  hurry() {
    this.wake?.();
  }

  /** The server cannot be reached any more: a call that has become silent is lost with it. */
  suspect() {
    if (this.state === "open") this.call.suspect().catch(() => {}); // no statistics of a closed call
  }

  /** Hang up and stop trying. */
  close() {
    const call = this.call;
    this.call = this.opening = null;
    this.#become("idle");
    this.hurry();
    call?.close();
    this.#tried(new Refused(0, "closed", ""));
  }

  /** Hang up and call again, for what a running session cannot change. */
  async restart() {
    if (this.state === "idle") return;
    if (this.state === "reconnecting") return this.hurry(); // the next call asks for what is wanted then
    this.close();
    await this.open(this.track);
  }

  #open() {
    this.#become("connecting");
    const opening = this.#dial();
    this.opening = opening;
    const settle = (state) => {
      if (this.opening !== opening) return; // closed since, and perhaps opened again
      this.opening = null;
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
      onEvent: (event) => this.call === call && this.onEvent(event),
      onTrack: (track) => this.call === call && this.onTrack(track),
      onStats: (report) => this.call === call && this.onStats(report),
      onLost: () => this.call === call && this.state === "open" && this.#reconnect(),
    });
    this.call = call;
    const track = this.track;
    await call.start(track, this.describe());
    if (this.track !== track) await call.replaceTrack(this.track);
    if (call.closed) throw call.ending; // in the moment since it opened
  }

  async #reconnect() {
    this.#become("reconnecting");
    let retryAfterS = null;
    for (let attempt = 1; this.state === "reconnecting"; attempt += 1) {
      this.onLost(attempt);
      await this.#pause(attempt, retryAfterS);
      if (this.state !== "reconnecting") return;
      try {
        await this.#dial();
        if (this.state === "reconnecting") this.#become("open");
        this.#tried(null);
        return;
      } catch (error) {
        if (this.state !== "reconnecting") return;
        if (isHopeless(error)) {
          this.close();
          this.onGivenUp(error);
          return;
        }
        retryAfterS = error.retryAfterS;
        this.#tried(new Refused(0, "still_lost", ""));
      }
    }
  }

  #nextTry() {
    const outcome = new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
    });
    this.hurry();
    return outcome;
  }

  /** Tell who waits how the try went; `error` is null when a call is open. */
  #tried(error) {
    for (const { resolve, reject } of this.waiting.splice(0)) error ? reject(error) : resolve();
  }

  #pause(attempt, retryAfterS) {
    const base = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length) - 1];
    const wait = Math.max(base * (1 + JITTER * Math.random()), (retryAfterS ?? 0) * 1_000);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.wake = () => (clearTimeout(timer), resolve());
    });
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.onState(state);
  }
}

const isHopeless = (error) => error.status >= 400 && error.status < 500 && error.status !== 429;
