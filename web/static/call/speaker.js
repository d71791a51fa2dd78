// The assistant's voice: one audio element, started in a click so that browsers let it play.

const AGAIN_MS = 1_000; // if it is paused again this soon, the system wants silence, and it stays paused

export class Speaker {
  /**
   * @param {HTMLAudioElement} element
   * @param {object} handlers
   * @param {() => void} handlers.onBlocked the browser requires a click first
   * @param {(reason: string) => void} handlers.onFailed it cannot play
   * @param {() => void} handlers.onPlaying sound is audible
   * @param {(stream: MediaStream) => void} handlers.onStream a new stream, which may carry sound
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

  /**
   * Returns the page's AudioContext. Made at the first click: an earlier one would start suspended.
   */
  context() {
    if (!this.audio) {
      this.audio = new AudioContext({ latencyHint: "interactive" });
      this.audio.addEventListener("statechange", () => this.#contextChanged());
    }
    this.#resume();
    return this.audio;
  }

  /** Lets the element play. Must be called in a click or a key press. */
  prime() {
    this.isOn = true;
    this.context();
    if (this.element.srcObject !== this.stream) this.element.srcObject = this.stream;
    this.play();
  }

  /**
   * Plays this track from now on, in place of an earlier one.
   *
   * @param {MediaStreamTrack} track
   */
  take(track) {
    for (const old of this.stream.getTracks()) this.stream.removeTrack(old);
    this.stream.addTrack(track);
    this.onStream(this.stream);
    this.play();
  }

  /** Returns whether pages may set the volume. On iPhones only the device's own buttons do. */
  canSetVolume() {
    const { volume } = this.element;
    this.element.volume = 0.5;
    const isSet = this.element.volume === 0.5;
    this.element.volume = volume;
    return isSet;
  }

  /** @param {number} volume 0 to 1 */
  setVolume(volume) {
    this.element.volume = Math.min(1, Math.max(0, Number(volume) || 0));
  }

  /** Notes that there is no call: a pause from now on is not an interruption. */
  rest() {
    this.isOn = false;
  }

  /** Plays on after the page was hidden, or after a phone call. */
  wake() {
    if (!this.isOn) return;
    this.#resume();
    if (this.element.paused) this.play();
  }

  play() {
    this.#resume();
    this.element.play().catch((error) => {
      if (error.name === "NotAllowedError") this.onBlocked();
      // AbortError: a newer track or a pause came in between; it is handled there.
      else if (error.name !== "AbortError") this.onFailed(error.message || error.name);
    });
  }

  // Safari reports `interrupted` during phone calls and while the screen is locked, others
  // `suspended`.
  #resume() {
    if (!this.audio || this.audio.state === "running" || this.audio.state === "closed") return;
    this.audio.resume().catch(() => {}); // not possible yet; the next click or return to the page tries again
  }

  #contextChanged() {
    if (this.isOn && !document.hidden && this.audio?.state === "interrupted") this.onBlocked();
    if (this.audio?.state === "running" && !this.element.paused) this.onPlaying();
  }

  // The page never pauses the voice. It was the system, for a phone call or another application.
  #paused() {
    // Between calls there is nothing to play. A hidden page plays on when it is visible again.
    if (!this.isOn || !this.stream.active || document.hidden) return;
    const now = performance.now();
    const isRefused = now - this.resumedAt < AGAIN_MS;
    this.resumedAt = now;
    if (isRefused) this.onBlocked();
    else this.play();
  }
}
