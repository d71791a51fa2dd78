// One WebRTC call to the Realtime door: offer, data channel `oai-events`, hang-up.

import { Refused, getJson, request } from "../server/api.js";

const GATHERING_MS = 300; // host candidates take a few ms; the server also finds those that come later
const RELAYED_MS = 3_000; // STUN and TURN servers answer in a round trip; over TCP it takes longer
const OPEN_MS = 10_000; // enough for ICE and DTLS on a bad Wi-Fi; after that, UDP is probably blocked
const CHECK_MS = 1_000;
const SILENT_MS = 3_000; // the server sends 50 packets a second, even in silence; ICE notices a loss only after 10 s
const SUSPECTED_MS = 400; // the same if the server's HTTP port is closed: 20 packets
const DISCONNECTED_MS = 2_000; // a change of network is often over within this time

/**
 * One call. `start` is called once. The end is reported once: by the rejection of `start` before
 * the call is open, by `onLost` after it, and not at all after `close`.
 */
export class Call {
  /** @type {number | undefined} number of audio packets at the last check */
  #checkedPackets;
  #heardAt = 0;
  /** @type {Promise<never> | undefined} */
  #ended;
  /** @type {RTCRtpSender | null} */
  #sender = null;
  /** @type {string | null} the call's address on the server */
  #location = null;
  /** @type {Record<"check" | "heal" | "gather", ReturnType<typeof setTimeout> | undefined>} */
  #timers = { check: undefined, heal: undefined, gather: undefined };

  /**
   * @param {object} handlers
   * @param {(event: any) => void} handlers.onEvent
   * @param {(track: MediaStreamTrack) => void} handlers.onTrack
   * @param {(report: RTCStatsReport) => void} handlers.onStats every second while it is open
   * @param {() => void} handlers.onLost
   */
  constructor({ onEvent, onTrack, onStats, onLost }) {
    this.onStats = onStats;
    this.onLost = onLost;
    this.isOpen = false;
    this.aborter = new AbortController(); // aborted with the reason when the call ends
    this.peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    this.peer.addEventListener("track", ({ track }) => onTrack(track));
    this.peer.addEventListener("connectionstatechange", () => this.#watch());
    this.channel = this.peer.createDataChannel("oai-events");
    this.channel.addEventListener("message", ({ data }) => onEvent(JSON.parse(data)));
    this.channel.addEventListener("close", () => this.#lost());
  }

  get closed() {
    return this.aborter.signal.aborted;
  }

  /** The reason why the call ended. */
  get ending() {
    return this.aborter.signal.reason;
  }

  /**
   * Connects and sends `track`. Resolves when events can be sent; rejects with `Refused`.
   *
   * @param {MediaStreamTrack} track
   * @param {object} session
   */
  async start(track, session) {
    try {
      const { sender } = this.peer.addTransceiver(track, { direction: "sendrecv" });
      this.#sender = sender;
      const relays = await this.#orClosed(this.#iceServers());
      await this.#orClosed(this.peer.setLocalDescription());
      await this.#orClosed(this.#gathered(relays ? RELAYED_MS : GATHERING_MS));
      const answer = await this.#orClosed(this.#offer(session));
      await this.#orClosed(this.peer.setRemoteDescription({ type: "answer", sdp: answer }));
      await this.#orClosed(this.#opened());
    } catch (error) {
      this.#end(error);
      throw this.ending;
    }
    this.isOpen = true;
    this.#timers.check = setInterval(() => this.#check(), CHECK_MS);
  }

  /** @param {object} event */
  send(event) {
    if (!this.closed && this.channel.readyState === "open") {
      this.channel.send(JSON.stringify(event));
    }
  }

  /**
   * Sends `track` from now on. A call that has ended ignores it; the next call will send it.
   *
   * @param {MediaStreamTrack} track
   */
  async replaceTrack(track) {
    await this.#sender?.replaceTrack(track).catch(() => {});
  }

  /** Hangs up. The request is completed even if the user leaves the page. */
  close() {
    this.#end(new Refused(0, "closed", ""));
  }

  /**
   * Checks the call when the server seems to be gone: if no sound arrives now, the call is lost.
   */
  async suspect() {
    const before = await this.#packets();
    await new Promise((resolve) => {
      setTimeout(resolve, SUSPECTED_MS);
    });
    if (before > 0 && (await this.#packets()) === before) this.#lost();
  }

  /** @param {unknown} reason */
  #end(reason) {
    if (this.closed) return;
    this.aborter.abort(reason);
    clearInterval(this.#timers.check);
    clearTimeout(this.#timers.heal);
    clearTimeout(this.#timers.gather);
    if (this.#location) {
      // A failure does not matter: the server also notices by itself.
      request(`${this.#location}/hangup`, { method: "POST", keepalive: true }).catch(() => {});
    }
    this.channel.close();
    this.peer.close();
  }

  /**
   * Returns the result of `step`. Rejects as soon as the call ends.
   *
   * @template T
   * @param {Promise<T>} step
   * @returns {Promise<T>}
   */
  async #orClosed(step) {
    const value = await Promise.race([step, this.#over()]);
    if (this.closed) throw this.ending;
    return value;
  }

  /** Never resolves; rejects with the reason when the call ends. */
  #over() {
    const { signal } = this.aborter;
    return (this.#ended ??= new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(this.ending), { once: true });
    }));
  }

  /** Configures the server's STUN and TURN servers. Returns whether there are any. */
  async #iceServers() {
    const { signal } = this.aborter;
    const { iceServers = [] } = await getJson("/earshot/ice", { signal }).catch(() => ({})); // the offer will show the error
    if (iceServers.length) this.peer.setConfiguration({ bundlePolicy: "max-bundle", iceServers });
    return iceServers.length > 0;
  }

  /** @param {object} session */
  async #offer(session) {
    const form = new FormData();
    form.append(
      "sdp",
      new Blob([/** @type {RTCSessionDescription} */ (this.peer.localDescription).sdp], {
        type: "application/sdp",
      }),
    );
    form.append("session", new Blob([JSON.stringify(session)], { type: "application/json" }));
    const { signal } = this.aborter;
    const response = await request("/v1/realtime/calls", { method: "POST", body: form, signal });
    this.#location = response.headers.get("Location");
    return response.text();
  }

  /**
   * @param {number} atMostMs
   * @returns {Promise<void>}
   */
  #gathered(atMostMs) {
    if (this.peer.iceGatheringState === "complete") return Promise.resolve();
    return new Promise((resolve) => {
      this.#timers.gather = setTimeout(resolve, atMostMs);
      this.peer.addEventListener("icegatheringstatechange", () => {
        if (this.peer.iceGatheringState === "complete") resolve();
      });
    });
  }

  /** @returns {Promise<void>} */
  #opened() {
    if (this.channel.readyState === "open") return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(noPath()), OPEN_MS);
      this.aborter.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
      this.channel.addEventListener("open", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }

  async #check() {
    const report = await this.peer.getStats();
    if (this.closed) return;
    this.onStats(report);
    const packets = packetsIn(report);
    const now = performance.now();
    if (packets !== this.#checkedPackets) {
      this.#checkedPackets = packets;
      this.#heardAt = now;
    } else if (packets > 0 && now - this.#heardAt > SILENT_MS) this.#lost();
  }

  #watch() {
    clearTimeout(this.#timers.heal);
    const state = this.peer.connectionState;
    if (state === "failed") this.#lost();
    if (state === "disconnected")
      this.#timers.heal = setTimeout(() => this.#lost(), DISCONNECTED_MS);
  }

  /** Returns the number of audio packets received so far; 0 if the call has ended. */
  async #packets() {
    return this.closed ? 0 : packetsIn(await this.peer.getStats());
  }

  #lost() {
    if (this.closed) return;
    const { isOpen } = this;
    this.#end(noPath());
    if (isOpen) this.onLost();
  }
}

const noPath = () => new Refused(0, "no_path", "");

/** @param {RTCStatsReport} report */
function packetsIn(report) {
  let packets = 0;
  for (const stat of report.values()) {
    if (stat.type === "inbound-rtp") packets += stat.packetsReceived;
  }
  return packets;
}
