// Stands in for RTCPeerConnection: no media, no network. A test reads what the page sent from
// `calls[n].sent` and speaks as the server with `calls[n].say(event, ...)`. `fates` are those of the next
// calls: "opens" (also when there is none), "fails" before its channel opens, or "hangs" before that.
window.calls = [];
window.fates = [];

window.RTCPeerConnection = class extends EventTarget {
  constructor() {
    super();
    Object.assign(this, {
      connectionState: "new",
      iceGatheringState: "complete",
      sent: [],
      tracks: [],
    });
    this.fate = window.fates.shift() ?? "opens";
    this.channel = new EventTarget();
    Object.assign(this.channel, {
      readyState: "connecting",
      send: (text) => {
        this.sent.push(JSON.parse(text));
        document.documentElement.dataset.sent = this.sent.length; // something a test can wait for
      },
      close: () => {},
    });
    window.calls.push(this);
  }

  addTransceiver(track) {
    this.tracks.push(track);
    const replaceTrack = async (next) => {
      if (this.connectionState === "closed") throw new DOMException("closed", "InvalidStateError");
      this.tracks.push(next);
    };
    return { sender: { replaceTrack } };
  }

  createDataChannel(label) {
    this.label = label;
    return this.channel;
  }

  async setLocalDescription() {
    this.localDescription = { type: "offer", sdp: "v=0" };
  }

  async setRemoteDescription(answer) {
    this.answer = answer;
    if (this.fate === "fails") return this.drop();
    if (this.fate === "hangs") return;
    this.connectionState = "connected";
    this.channel.readyState = "open";
    this.channel.dispatchEvent(new Event("open"));
  }

  async getStats() {
    return new Map((this.stats ?? []).map((one) => [one.id, one]));
  }

  say(...events) {
    for (const event of events) {
      const data = JSON.stringify({ event_id: "evt", ...event });
      this.channel.dispatchEvent(new MessageEvent("message", { data }));
    }
  }

  drop() {
    this.connectionState = "failed";
    this.dispatchEvent(new Event("connectionstatechange"));
  }

  close() {
    this.connectionState = "closed";
    this.channel.readyState = "closed";
  }
};
