// One WebRTC call to the Realtime door: offer, data channel `oai-events`, hang-up.

import { Refused, getJson, request } from "../server/api.js";

const GATHERING_MS = 300; // host candidates take a few ms; the server accepts later ones unseen
const RELAYED_MS = 3_000; // STUN and TURN servers answer within a round trip; TCP to them takes longer
const OPEN_MS = 10_000; // ICE and DTLS on a bad Wi-Fi; longer means that UDP does not get through
const CHECK_MS = 1_000;
const SILENT_MS = 3_000; // the server sends 50 packets a second, silence too; ICE takes 10 s to miss them
const SUSPECTED_MS = 400; // the same, when the server's HTTP port is known to be closed: 20 packets
const DISCONNECTED_MS = 2_000; // a change of network often heals within one

/**
 * `start` is called once. A call reports its end once: before it is open by the rejection of
 * `start`, later by `onLost`, and not at all after `close`.
 */
export class Call {
  /** @type {number | undefined} packets of sound at the last check */
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
    this.aborter = new AbortController(); // aborted when the call is over, with the reason
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

  /** Why the call is over. */
  get ending() {
    return this.aborter.signal.reason;
  }

  /**
   * Connects and sends `track`; resolves when events can flow, rejects with `Refused`.
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
   * Sends `track` from now on. A call that is over refuses it, and the next call sends it.
   *
   * @param {MediaStreamTrack} track
   */
  async replaceTrack(track) {
    await this.#sender?.replaceTrack(track).catch(() => {});
  }

  /** Hangs up; survives the page being left. */
  close() {
    this.#end(new Refused(0, "closed", ""));
  }

  /** There is reason to think that the server is gone: lost, if no sound comes from now on. */
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
      // Failing is fine: the server notices by itself, too.
      request(`${this.#location}/hangup`, { method: "POST", keepalive: true }).catch(() => {});
    }
    this.channel.close();
    this.peer.close();
  }

  /**
   * What `step` gives; rejects as soon as the call is over.
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

  /** Never resolves; rejects with the reason when the call is over. */
  #over() {
    const { signal } = this.aborter;
    return (this.#ended ??= new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(this.ending), { once: true });
    }));
  }

  /** STUN and TURN, if the server has any to offer. */
  async #iceServers() {
    const { signal } = this.aborter;
    const { iceServers = [] } = await getJson("/earshot/ice", { signal }).catch(() => ({})); // the offer tells what is wrong
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

  /** Packets of sound that came so far; 0 when the call is over. */
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
