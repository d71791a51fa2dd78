// The answer's voice: one audio element, started inside a click so that browsers let it play.

export class Voice {
  /** `onBlocked()` when the browser wants a click first; `onStream(stream)` when sound may come. */
  constructor(element, { onBlocked, onStream }) {
    Object.assign(this, { element, onBlocked, onStream });
    this.stream = new MediaStream();
    this.audio = null;
  }

  /** The page's AudioContext; made at the first click, since earlier ones start suspended. */
  context() {
    this.audio ??= new AudioContext({ latencyHint: "interactive" });
    if (this.audio.state === "suspended") this.audio.resume();
    return this.audio;
  }

  /** Call inside a click or key press. */
  prime() {
    this.context();
    if (this.element.srcObject !== this.stream) this.element.srcObject = this.stream;
    this.play();
  }

  /** Play this track from now on instead of an earlier one. */
  take(track) {
    for (const old of this.stream.getTracks()) this.stream.removeTrack(old);
    this.stream.addTrack(track);
    this.onStream(this.stream);
    this.play();
  }

  play() {
    this.element.play().catch((error) => {
      if (error.name === "NotAllowedError") this.onBlocked();
    });
  }
}
