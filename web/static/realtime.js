// One WebRTC call to the Realtime door: offer, data channel `oai-events`, hang-up.

import { Refused, getJson, request } from "./api.js";
import { authorization } from "./key.js";

const GATHERING_MS = 300; // host candidates take a few ms; the server accepts later ones unseen
const RELAYED_MS = 3_000; // STUN and TURN servers answer within a round trip; TCP to them takes longer
const OPEN_MS = 10_000; // ICE and DTLS on a bad Wi-Fi; longer means that UDP does not get through
const CHECK_MS = 1_000;
const SILENT_MS = 3_000; // the server sends 50 packets a second, silence too; ICE takes 10 s to miss them
const DISCONNECTED_MS = 2_000; // a change of network often heals within one

/** Use `start` once; `onLost` is called once if the call ends without `close`; `onStats` every second. */
export class Call {
  constructor({ onEvent, onTrack, onStats, onLost }) {
    Object.assign(this, { onStats, onLost });
    this.location = null;
    this.closed = false;
    this.peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    this.peer.addEventListener("track", ({ track }) => onTrack(track));
    this.peer.addEventListener("connectionstatechange", () => this.#watch());
    this.channel = this.peer.createDataChannel("oai-events");
    this.channel.addEventListener("message", ({ data }) => onEvent(JSON.parse(data)));
    this.channel.addEventListener("close", () => this.#lost());
  }

  /** Connect and send `track`; resolves when events can flow, rejects with `Refused`. */
  async start(track, session) {
    const { sender } = this.peer.addTransceiver(track, { direction: "sendrecv" });
    this.sender = sender;
    try {
      const relays = await this.#iceServers();
      await this.peer.setLocalDescription();
      await this.#gathered(relays ? RELAYED_MS : GATHERING_MS);
      await this.#offer(session);
      await this.#opened();
      this.checking = setInterval(() => this.#check(), CHECK_MS);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  send(event) {
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(event));
  }

  replaceTrack(track) {
    return this.sender?.replaceTrack(track);
  }

  /** Hang up; survives the page being left. */
  close() {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.checking);
    if (this.location) {
      const options = { method: "POST", keepalive: true, headers: authorization() };
      fetch(`${this.location}/hangup`, options).catch(() => {}); // the server notices by itself too
    }
    this.channel.close();
    this.peer.close();
  }

  /** STUN and TURN, if the server has any to offer. */
  async #iceServers() {
    const { iceServers = [] } = await getJson("/earshot/ice").catch(() => ({})); // the offer tells what is wrong
    if (iceServers.length) this.peer.setConfiguration({ bundlePolicy: "max-bundle", iceServers });
    return iceServers.length > 0;
  }

  async #offer(session) {
    const form = new FormData();
    form.append("sdp", new Blob([this.peer.localDescription.sdp], { type: "application/sdp" }));
    form.append("session", new Blob([JSON.stringify(session)], { type: "application/json" }));
    const response = await request("/v1/realtime/calls", { method: "POST", body: form });
    this.location = response.headers.get("Location");
    const sdp = await response.text();
    if (this.closed) return this.#hangUpLate();
    return this.peer.setRemoteDescription({ type: "answer", sdp });
  }

  #hangUpLate() {
    this.closed = false;
    this.close();
    throw new Refused(0, "closed", "");
  }

  #gathered(atMostMs) {
    if (this.peer.iceGatheringState === "complete") return Promise.resolve();
    return new Promise((resolve) => {
      setTimeout(resolve, atMostMs);
      this.peer.addEventListener("icegatheringstatechange", () => {
        if (this.peer.iceGatheringState === "complete") resolve();
      });
    });
  }

  #opened() {
    if (this.channel.readyState === "open") return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Refused(0, "no_path", "")), OPEN_MS);
      const settle = (action) => () => (clearTimeout(timer), action());
      this.channel.addEventListener("open", settle(resolve));
      this.channel.addEventListener("close", settle(() => reject(new Refused(0, "no_path", ""))));
    });
  }

  async #check() {
    let packets = 0;
    const report = await this.peer.getStats();
    if (this.closed) return;
    this.onStats(report);
    for (const stat of report.values()) {
      if (stat.type === "inbound-rtp") packets += stat.packetsReceived;
    }
    const now = performance.now();
    if (packets !== this.packets) Object.assign(this, { packets, heardAt: now });
    else if (packets > 0 && now - this.heardAt > SILENT_MS) this.#lost();
  }

  #watch() {
    clearTimeout(this.healing);
    const state = this.peer.connectionState;
    if (state === "failed") this.#lost();
    if (state === "disconnected") this.healing = setTimeout(() => this.#lost(), DISCONNECTED_MS);
  }

  #lost() {
    clearTimeout(this.healing);
    if (this.closed) return;
    const wasOpen = this.peer.connectionState !== "new";
    this.close();
    if (wasOpen) this.onLost();
  }
}
