// The assistant's voice: one audio element, started in a click so that browsers let it play.

// If the system pauses the voice again this soon after we resumed it, it wants silence.
const SECOND_PAUSE_MS = 1_000;

export class Speaker {
  /**
   * @param {HTMLAudioElement} element
   * @param {object} handlers
   * @param {() => void} handlers.onBlocked the browser requires a click first
   * @param {(reason: string) => void} handlers.onFailed the element cannot play
   * @param {() => void} handlers.onPlaying the element plays
   * @param {(stream: MediaStream) => void} handlers.onStream the stream carries another track
   */
  constructor(element, { onBlocked, onFailed, onPlaying, onStream }) {
    this.element = element;
    this.onBlocked = onBlocked;
    this.onFailed = onFailed;
    this.onPlaying = onPlaying;
    this.onStream = onStream;
    this.stream = new MediaStream();
    /** @type {AudioContext | null} */
    this.audioContext = null;
    this.isInCall = false;
    this.resumedAtMs = -Infinity;
    element.addEventListener("pause", () => this.#paused());
    element.addEventListener("playing", () => this.onPlaying());
  }

  /**
   * Returns the page's AudioContext. It is made at the first click: an earlier one would be suspended.
   */
  context() {
    if (!this.audioContext) {
      this.audioContext = new AudioContext({ latencyHint: "interactive" });
      this.audioContext.addEventListener("statechange", () => this.#contextChanged());
    }
    this.#resume();
    return this.audioContext;
  }

  /**
   * Plays on this device from now on; on the system's if it is not there.
   *
   * @param {string} deviceId empty: the system's choice
   */
  async useDevice(deviceId) {
    try {
      await this.element.setSinkId?.(deviceId);
    } catch {
      await this.element.setSinkId("");
    }
  }

  /** Lets the element play in the call that begins. Must be called in a click or a key press. */
  prime() {
    this.isInCall = true;
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
    this.isInCall = false;
  }

  /** Plays on after the page was hidden, or after a phone call. */
  wake() {
    if (!this.isInCall) return;
    this.#resume();
    if (this.element.paused) this.play();
  }

  /** Starts or continues to play. Reports if the browser does not allow it. */
  play() {
    this.#resume();
    this.element.play().catch((error) => {
      if (error.name === "NotAllowedError") this.onBlocked();
      // AbortError: a newer track or a pause came in between. Its own handler does the rest.
      else if (error.name !== "AbortError") this.onFailed(error.message || error.name);
    });
  }

  // Resumes the AudioContext. Safari reports `interrupted` during phone calls and while the screen is locked, others
  // `suspended`.
  #resume() {
    if (
      !this.audioContext ||
      this.audioContext.state === "running" ||
      this.audioContext.state === "closed"
    )
      return;
    this.audioContext.resume().catch(() => {}); // not possible yet; the next click or return to the page tries again
  }

  #contextChanged() {
    if (this.isInCall && !document.hidden && this.audioContext?.state === "interrupted")
      this.onBlocked();
    if (this.audioContext?.state === "running" && !this.element.paused) this.onPlaying();
  }

  // The page never pauses the voice. It was the system, for a phone call or another application.
  #paused() {
    // Between calls there is nothing to play. A hidden page plays on when it is visible again.
    if (!this.isInCall || !this.stream.active || document.hidden) return;
    const now = performance.now();
    const isRefused = now - this.resumedAtMs < SECOND_PAUSE_MS;
    this.resumedAtMs = now;
    if (isRefused) this.onBlocked();
    else this.play();
  }
}
