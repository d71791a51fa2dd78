// The answer's voice: one audio element, started inside a click so that browsers let it play.

const AGAIN_MS = 1_000; // paused again so soon: the system wants it silent, and we leave it so

export class Speaker {
  /**
   * @param {HTMLAudioElement} element
   * @param {object} handlers
   * @param {() => void} handlers.onBlocked the browser wants a click first
   * @param {(reason: string) => void} handlers.onFailed it cannot play
   * @param {() => void} handlers.onPlaying sound can be heard
   * @param {(stream: MediaStream) => void} handlers.onStream sound may come
   */
  constructor(element, { onBlocked, onFailed, onPlaying, onStream }) {
    this.element = element;
    this.onBlocked = onBlocked;
    this.onFailed = onFailed;
    this.onPlaying = onPlaying;
    this.onStream = onStream;
    this.stream = new MediaStream();
    /** @type {AudioContext | null} */
    this.audio = null;
    this.isOn = false;
    this.resumedAt = -Infinity;
    element.addEventListener("pause", () => this.#paused());
    element.addEventListener("playing", () => this.onPlaying());
  }

  /** The page's AudioContext; made at the first click, since earlier ones start suspended. */
  context() {
    if (!this.audio) {
      this.audio = new AudioContext({ latencyHint: "interactive" });
      this.audio.addEventListener("statechange", () => this.#contextChanged());
    }
    this.#resume();
    return this.audio;
  }

  /** Lets the element play; to be called inside a click or key press. */
  prime() {
    this.isOn = true;
    this.context();
    if (this.element.srcObject !== this.stream) this.element.srcObject = this.stream;
    this.play();
  }

  /**
   * Play this track from now on instead of an earlier one.
   *
   * @param {MediaStreamTrack} track
   */
  take(track) {
    for (const old of this.stream.getTracks()) this.stream.removeTrack(old);
    this.stream.addTrack(track);
    this.onStream(this.stream);
    this.play();
  }

  /** No call: what stops now was not interrupted. */
  rest() {
    this.isOn = false;
  }

  /** Go on after the page was hidden, or after a phone call. */
  wake() {
    if (!this.isOn) return;
    this.#resume();
    if (this.element.paused) this.play();
  }

  play() {
    this.#resume();
    this.element.play().catch((error) => {
      if (error.name === "NotAllowedError") this.onBlocked();
      // AbortError: a newer track or a pause came in between, and is handled as such.
      else if (error.name !== "AbortError") this.onFailed(error.message || error.name);
    });
  }

  // Safari says `interrupted` during phone calls and while the screen is locked, others `suspended`.
  #resume() {
    if (!this.audio || this.audio.state === "running" || this.audio.state === "closed") return;
    this.audio.resume().catch(() => {}); // not yet: the next click or return to the page tries again
  }

  #contextChanged() {
    if (this.isOn && !document.hidden && this.audio?.state === "interrupted") this.onBlocked();
    if (this.audio?.state === "running" && !this.element.paused) this.onPlaying();
  }

  // Nothing of the page pauses the voice: it was the system, for a phone call or another application.
  #paused() {
    // Between two calls there is nothing to play; a hidden page goes on when it is seen again.
    if (!this.isOn || !this.stream.active || document.hidden) return;
    const now = performance.now();
    const isRefused = now - this.resumedAt < AGAIN_MS;
    this.resumedAt = now;
    if (isRefused) this.onBlocked();
    else this.play();
  }
}
