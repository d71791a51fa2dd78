// One WebRTC call to the Realtime door: offer, data channel `oai-events`, hang-up.

import { Refused, getJson, request } from "../server/api.js";

const GATHERING_MS = 300; // host candidates take a few ms; the server also finds those that come later
const RELAYED_MS = 3_000; // STUN and TURN servers answer in a round trip; over TCP it takes longer
const OPEN_MS = 10_000; // enough for ICE and DTLS on a bad Wi-Fi; after that, UDP is probably blocked
const CHECK_MS = 500; // time between two looks at the call's statistics
const CHECKS_PER_REPORT = 2; // the page shows new statistics every second
const GONE = ["call_not_found", "gateway_restarting"]; // answers of a server whose process with the call has ended
const SILENCE_MS = 3_000; // the server sends 50 packets a second, even in silence; ICE notices a loss only after 10 s
const SHORT_SILENCE_MS = 400; // 20 packets; enough as a proof if the server's HTTP port is closed, too
const DISCONNECTED_MS = 2_000; // a change of network is often over within this time

/**
 * One call. `start` is called once. The end is reported once: by the rejection of `start` before
 * the call is open, by `onLost` after it, and not at all after `close`.
 */
export class Call {
  /** @type {number | undefined} number of audio packets received until the last check */
  #lastPackets;
  /** Time of the last check that found new packets. */
  #changedAtMs = 0;
  /** Number of checks so far. */
  #checks = 0;
  /** @type {Promise<never> | undefined} of `#rejectedAtEnd` */
  #rejection;
  /** @type {RTCRtpSender | null} */
  #sender = null;
  /** @type {string | null} the call's address on the server */
  #location = null;
  /**
   * `check`: looks at the statistics; `disconnected`: ends a call that stays disconnected; `gather`:
   * ends the wait for ICE candidates.
   *
   * @type {Record<"check" | "disconnected" | "gather", ReturnType<typeof setTimeout> | undefined>}
   */
  #timers = { check: undefined, disconnected: undefined, gather: undefined };

  /**
   * @param {object} handlers
   * @param {(event: any) => void} handlers.onEvent an event of the server
   * @param {(track: MediaStreamTrack) => void} handlers.onTrack the assistant's voice
   * @param {(report: RTCStatsReport) => void} handlers.onStats every second while the call is open
   * @param {() => void} handlers.onLost the open call ended, and not by `close`
   */
  constructor({ onEvent, onTrack, onStats, onLost }) {
    this.onStats = onStats;
    this.onLost = onLost;
    this.isOpen = false;
    this.aborter = new AbortController(); // aborted with the reason when the call ends
    this.peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    this.peer.addEventListener("track", ({ track }) => onTrack(track));
    this.peer.addEventListener("connectionstatechange", () => this.#connectionChanged());
    this.channel = this.peer.createDataChannel("oai-events");
    this.channel.addEventListener("message", ({ data }) => onEvent(JSON.parse(data)));
    this.channel.addEventListener("close", () => this.#lost());
  }

  /** True when the call has ended, for whatever reason. */
  get closed() {
    return this.aborter.signal.aborted;
  }

  /** The reason why the call ended. */
  get endReason() {
    return this.aborter.signal.reason;
  }

  /**
   * Connects and sends `track`. Resolves when events can be sent; rejects with `Refused`.
   *
   * @param {MediaStreamTrack} track
   * @param {object} session the settings, as the Realtime API's session object
   */
  async start(track, session) {
    try {
      const { sender } = this.peer.addTransceiver(track, { direction: "sendrecv" });
      this.#sender = sender;
      const relays = await this.#unlessEnded(this.#configureIceServers());
      await this.#unlessEnded(this.peer.setLocalDescription());
      await this.#unlessEnded(this.#candidatesGathered(relays ? RELAYED_MS : GATHERING_MS));
      const answer = await this.#unlessEnded(this.#sendOffer(session));
      await this.#unlessEnded(this.peer.setRemoteDescription({ type: "answer", sdp: answer }));
      await this.#unlessEnded(this.#channelOpened());
    } catch (error) {
      this.#end(error);
      throw this.endReason;
    }
    this.isOpen = true;
    this.#timers.check = setInterval(() => this.#check(), CHECK_MS);
  }

  /** Sends an event. A call that is not open ignores it. @param {object} event */
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

  /** Ends the call as lost if no sound arrives now. For when the server seems to be gone. */
  async endIfSilent() {
    const before = await this.#packets();
    await new Promise((resolve) => {
      setTimeout(resolve, SHORT_SILENCE_MS);
    });
    if (before > 0 && (await this.#packets()) === before) this.#lost();
  }

  /** Ends the call on both sides. @param {unknown} reason */
  #end(reason) {
    if (this.closed) return;
    this.aborter.abort(reason);
    clearInterval(this.#timers.check);
    clearTimeout(this.#timers.disconnected);
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
  async #unlessEnded(step) {
    const value = await Promise.race([step, this.#rejectedAtEnd()]);
    if (this.closed) throw this.endReason;
    return value;
  }

  /** Never resolves; rejects with the reason when the call ends. */
  #rejectedAtEnd() {
    const { signal } = this.aborter;
    return (this.#rejection ??= new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(this.endReason), { once: true });
    }));
  }

  /** Configures the server's STUN and TURN servers. Returns whether there are any. */
  async #configureIceServers() {
    const { signal } = this.aborter;
    const { iceServers = [] } = await getJson("/earshot/ice", { signal }).catch(() => ({})); // the offer will show the error
    if (iceServers.length) this.peer.setConfiguration({ bundlePolicy: "max-bundle", iceServers });
    return iceServers.length > 0;
  }

  /** Sends our offer; returns the server's answer as SDP. @param {object} session */
  async #sendOffer(session) {
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
   * Waits for ICE candidates.
   *
   * @param {number} limitMs the wait ends after this time, with the candidates found so far
   * @returns {Promise<void>}
   */
  #candidatesGathered(limitMs) {
    if (this.peer.iceGatheringState === "complete") return Promise.resolve();
    return new Promise((resolve) => {
      this.#timers.gather = setTimeout(resolve, limitMs);
      this.peer.addEventListener("icegatheringstatechange", () => {
        if (this.peer.iceGatheringState === "complete") resolve();
      });
    });
  }

  /** Waits until the data channel is open. Rejects if it takes too long. @returns {Promise<void>} */
  #channelOpened() {
    if (this.channel.readyState === "open") return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(noPath()), OPEN_MS);
      this.aborter.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
      this.channel.addEventListener("open", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }

  /** Reports the statistics, and ends a call over which no packets arrive any more. */
  async #check() {
    const report = await this.peer.getStats();
    if (this.closed) return;
    this.#checks += 1;
    if (this.#checks % CHECKS_PER_REPORT === 0) this.onStats(report);
    const packets = packetsIn(report);
    const now = performance.now();
    if (packets !== this.#lastPackets) {
      this.#lastPackets = packets;
      this.#changedAtMs = now;
    } else if (packets > 0 && now - this.#changedAtMs > SILENCE_MS) this.#lost();
    else if (packets > 0) await this.#endIfUnknown();
  }

  /**
   * Ends the call as lost if the server does not know it any more: its process has ended, and
   * another one answers. The question is an offer that the server refuses in any case.
   */
  async #endIfUnknown() {
    const headers = { "Content-Type": "application/sdp" };
    const { signal } = this.aborter;
    try {
      await request(`${this.#location}`, { method: "POST", body: "v=0", headers, signal });
    } catch (/** @type {any} */ refused) {
      if (GONE.includes(refused.code)) this.#lost();
    }
  }

  #connectionChanged() {
    clearTimeout(this.#timers.disconnected);
    const state = this.peer.connectionState;
    if (state === "failed") this.#lost();
    if (state === "disconnected")
      this.#timers.disconnected = setTimeout(() => this.#lost(), DISCONNECTED_MS);
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

/** Returns the number of audio packets received so far. @param {RTCStatsReport} report */
function packetsIn(report) {
  let packets = 0;
  for (const stat of report.values()) {
    if (stat.type === "inbound-rtp") packets += stat.packetsReceived;
  }
  return packets;
}
