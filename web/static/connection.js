// Keeps one call alive: opens it when needed, and again, with growing patience, when it is lost.

import { Refused } from "./api.js";
import { Call } from "./realtime.js";

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
    addEventListener("online", () => this.hurry());
    addEventListener("pagehide", () => this.close());
  }

  /** Resolves when open; rejects with `Refused`. A second caller waits for the first one's call. */
  open(track) {
    this.track = track;
    if (this.state === "open") return this.replaceTrack(track);
    this.opening ??= this.#open().finally(() => (this.opening = null));
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

  /** Hang up and stop trying. */
  close() {
    const call = this.call;
    this.call = null;
    this.hurry();
    call?.close();
    this.#become("idle");
  }

  /** Hang up and call again, for what a running session cannot change. */
  async restart() {
    if (this.state === "idle") return;
    this.close();
    await this.open(this.track);
  }

  async #open() {
    this.#become("connecting");
    try {
      await this.#dial();
    } catch (error) {
      if (this.state === "connecting") this.#become("idle");
      throw error;
    }
  }

  async #dial() {
    const call = new Call({
      onEvent: (event) => this.call === call && this.onEvent(event),
      onTrack: this.onTrack,
      onStats: (report) => this.call === call && this.onStats(report),
      onLost: () => this.call === call && this.#reconnect(),
    });
    this.call = call;
    const track = this.track;
    await call.start(track, this.describe());
    if (this.call !== call) throw new Refused(0, "closed", "");
    if (this.track !== track) await call.replaceTrack(this.track);
    this.#become("open");
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
        return;
      } catch (error) {
        if (this.state !== "reconnecting") return;
        if (isHopeless(error)) {
          this.close();
          this.onGivenUp(error);
          return;
        }
        retryAfterS = error.retryAfterS;
      }
    }
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
