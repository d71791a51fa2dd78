// Stands in for RTCPeerConnection: no media, no network. A test reads what the page sent from
// `calls[n].sent` and speaks as the server with `calls[n].say(event, ...)`.
window.calls = [];

window.RTCPeerConnection = class extends EventTarget {
  constructor() {
    super();
    Object.assign(this, { connectionState: "new", iceGatheringState: "complete", sent: [], tracks: [] });
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
    return { sender: { replaceTrack: async (next) => this.tracks.push(next) } };
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
  }
};
