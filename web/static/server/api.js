// Requests to the server with its key. All failures become one kind of error, `Refused`.

import { authorization } from "./key.js";

/**
 * A failed request. `status` is the HTTP status, 0 if there was no answer. `code` is the server's stable
 * error code, or one of the page's own: unreachable, closed, no_path, still_lost.
 */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {number | null} [retryAfterS]
   * @param {string | null} [param] name of the field that the server refused
   */
  constructor(status, code, message, retryAfterS = null, param = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
    this.param = param;
  }
}

/**
 * @typedef {RequestInit & { limitMs?: number }} Options `limitMs`: how long the request may take, until
 *   the answer has come in
 */

/** The folder of the page, seen from this file. A proxy may have put it below a path of its own. */
const ROOT = new URL("../../", import.meta.url);

const ANSWER_MS = 15_000; // usual limit; the slowest request, an offer for a call, waits 3 s for STUN and TURN
const HEARTBEAT_MS = 15_000; // longest time between two writes of the server to an event stream
const SLACK_MS = 5_000; // how much later a heartbeat may come from a busy server or over a bad Wi-Fi

/**
 * Returns a response with status 2xx. Rejects with `Refused` for any other status, and with the
 * signal's reason after `options.signal`.
 *
 * @param {string} path begins with `/` and counts from the page's folder
 * @param {Options} options
 */
export async function request(path, { limitMs = ANSWER_MS, ...options } = {}) {
  return ask(path, options, new Deadline(limitMs, options.signal));
}

/**
 * Returns the JSON value of an answer. Rejects as `request` does.
 *
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function getJson(path, options) {
  const deadline = new Deadline(options?.limitMs ?? ANSWER_MS, options?.signal);
  const response = await ask(path, options, deadline);
  return deadline.guard(response.json());
}

/**
 * Yields the bytes of an answer as they come. Rejects as `request` does, also if the next bytes take
 * longer than `limitMs`.
 *
 * @param {string} path
 * @param {Options} options
 */
export async function* bytesOf(path, { limitMs = ANSWER_MS, ...options }) {
  const deadline = new Deadline(limitMs, options.signal);
  try {
    const { body } = await ask(path, options, deadline);
    const reader = /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
    for (;;) {
      deadline.extend(limitMs);
      const { value, done } = await deadline.guard(reader.read());
      if (done) return;
      yield value;
    }
  } finally {
    deadline.end(new Refused(0, "closed", ""));
  }
}

/**
 * Sends a request with the key. Returns its response once the headers have come in.
 *
 * @param {string} path
 * @param {RequestInit | undefined} options
 * @param {Deadline} deadline
 */
async function ask(path, options, deadline) {
  const headers = { ...authorization(), .../** @type {object} */ (options?.headers) };
  const url = new URL(path.replace(/^\//, ""), ROOT);
  const asked = fetch(url, { ...options, headers, cache: "no-store", signal: deadline.signal });
  const response = await deadline.guard(asked);
  if (response.ok) return response;
  throw await refusal(response);
}

/**
 * Returns whether the error means that no server is there. A proxy may say so in its place.
 *
 * @param {any} error
 */
export const isAway = (error) =>
  !(error.status > 0) || error.status === 502 || error.status === 504;

/**
 * Waits for `ms`. Ends earlier when `signal` is aborted, the network returns, or the page becomes
 * visible.
 *
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const over = new AbortController();
    const end = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const timer = setTimeout(end, ms);
    const options = { signal: over.signal };
    addEventListener("online", end, options);
    document.addEventListener("visibilitychange", () => document.hidden || end(), options);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, options);
  });
}

/** Ends a request when `outer` is aborted, or when `ms` have passed without `extend`. */
class Deadline {
  /**
   * @param {number} ms
   * @param {AbortSignal | null} [outer]
   */
  constructor(ms, outer) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.aborter = new AbortController();
    this.signal = this.aborter.signal;
    const follow = () => this.end(outer?.reason);
    if (outer?.aborted) follow();
    else outer?.addEventListener("abort", follow, { once: true });
    this.extend(ms);
  }

  /**
   * Sets the remaining time to `ms`. A request that has ended stays ended.
   *
   * @param {number} ms
   */
  extend(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(unreachable()), ms);
  }

  /** Ends the request now. @param {unknown} reason with which it rejects */
  end(reason) {
    clearTimeout(this.timer);
    this.aborter.abort(reason);
  }

  /**
   * Returns the result of `work`. Browsers throw different errors for an aborted read; here it is
   * always our reason.
   *
   * @template T
   * @param {Promise<T>} work
   */
  async guard(work) {
    try {
      return await work;
    } catch (error) {
      if (this.signal.aborted) throw this.signal.reason;
      throw error instanceof TypeError ? unreachable() : error;
    }
  }
}

const unreachable = () => new Refused(0, "unreachable", "");

/**
 * Yields server-sent events as {event, data}. EventSource is not used because it cannot send the
 * key. Ends with the stream. Rejects with `Refused` when the server's heartbeats stop, also if that
 * happened while this machine slept.
 *
 * @param {string} path
 * @param {AbortSignal} signal
 */
export async function* serverSent(path, signal) {
  const deadline = new Deadline(ANSWER_MS, signal);
  const watch = new HeartbeatWatch(deadline);
  try {
    const options = { headers: { Accept: "text/event-stream" } };
    const response = await ask(path, options, deadline);
    const body = /** @type {ReadableStream<any>} */ (response.body);
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      watch.beat();
      const { value, done } = await deadline.guard(reader.read());
      if (done) return;
      buffer += value;
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseBlock(block);
        if (event.data) yield event;
      }
    }
  } finally {
    watch.close();
    deadline.end(new Refused(0, "closed", ""));
  }
}

/**
 * Ends a stream without heartbeats: at its deadline, or at once if the deadline passed during
 * sleep.
 */
class HeartbeatWatch {
  /** @param {Deadline} deadline */
  constructor(deadline) {
    this.deadline = deadline;
    this.beatAtMs = Date.now();
    this.gone = new AbortController();
    const { signal } = this.gone;
    // Timers stop while a machine or a tab sleeps; the clock does not.
    for (const event of ["pageshow", "focus"]) {
      addEventListener(event, () => this.#look(), { signal });
    }
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    // After a change of network nothing arrives over the old one, and TCP takes minutes to notice.
    for (const event of ["online", "offline"]) {
      addEventListener(event, () => this.#end(), { signal });
    }
  }

  /** Notes that the stream is alive now. */
  beat() {
    this.beatAtMs = Date.now();
    this.deadline.extend(HEARTBEAT_MS + SLACK_MS);
  }

  /** Stops watching. */
  close() {
    this.gone.abort();
  }

  /** Ends the stream if the last heartbeat is too old. */
  #look() {
    if (Date.now() - this.beatAtMs > HEARTBEAT_MS + SLACK_MS) this.#end();
  }

  #end() {
    this.deadline.end(unreachable());
  }
}

/** Returns the event that one block of lines describes. @param {string} block */
function parseBlock(block) {
  const event = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.event = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

/** Returns the error of a response that is not 2xx. @param {Response} response */
async function refusal(response) {
  const retryAfter = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  /** @type {{ code?: string, message?: string, param?: string | null }} */
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // The body is not JSON of our server, but the page of a proxy. Only the status is known.
  }
  return new Refused(
    response.status,
    error.code ?? `http_${response.status}`,
    error.message ?? response.statusText,
    Number.isFinite(retryAfter) ? retryAfter : null,
    error.param,
  );
}
