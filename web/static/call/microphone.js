// The microphone, or silence in its place: a call always has a track, so it is never renegotiated.

const WANTED = {
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
  channelCount: 1,
};

/**
 * The microphone cannot be used. `code`: insecure, no_microphone, denied or busy; closed if it was
 * closed while the browser asked the user.
 */
export class NoMicrophone extends Error {
  /** @param {string} code */
  constructor(code) {
    super(code);
    this.code = code;
  }
}

/** @type {Record<string, string>} */
const CODES = {
  NotFoundError: "no_microphone",
  OverconstrainedError: "no_microphone",
  NotAllowedError: "denied",
  SecurityError: "denied",
  NotReadableError: "busy",
  AbortError: "busy",
};

export class Microphone {
  /**
   * @param {object} parts
   * @param {() => AudioContext} parts.context returns the page's AudioContext
   * @param {() => void} parts.onChange the device went away or another one takes its place, or the
   *   system silences it or lets it be heard again
   */
  constructor({ context, onChange }) {
    this.context = context;
    this.onChange = onChange;
    /** @type {MediaStream | null} */
    this.stream = null;
    /** @type {Promise<void> | null} */
    this.opening = null;
    /** @type {MediaStreamTrack | null} */
    this.silent = null;
    this.isEnabled = true;
    this.isSilenced = false; // by the user, with the mute button
    this.isMissing = false; // the user wants it, and there is none
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.#devicesChanged());
  }

  get isOpen() {
    return this.stream !== null;
  }

  /**
   * True if the system replaces the sound by silence: a phone call, another application, a switch.
   */
  get isMuted() {
    return this.stream !== null && this.track.muted;
  }

  /** The track to send now. */
  get track() {
    return this.stream ? this.stream.getAudioTracks()[0] : this.#silence();
  }

  /** Asks for the microphone. Throws `NoMicrophone`. A second caller waits for the same answer. */
  async open() {
    if (this.stream) return;
    this.opening ??= this.#ask();
    await this.opening;
  }

  /**
   * Lets sound through or not, without releasing the microphone.
   *
   * @param {boolean} isEnabled
   */
  enable(isEnabled) {
    this.isEnabled = isEnabled;
    this.#apply();
  }

  /**
   * Mutes the microphone for the user, whatever `enable` allows.
   *
   * @param {boolean} isSilenced
   */
  silence(isSilenced) {
    this.isSilenced = isSilenced;
    this.#apply();
  }

  #apply() {
    if (this.stream) this.track.enabled = this.isEnabled && !this.isSilenced;
  }

  /** Releases the microphone: the browser's recording mark disappears. */
  close() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = this.opening = null;
    this.isMissing = false;
  }

  /** Releases the microphone and asks for it again, as some systems require after they muted it. */
  async reopen() {
    this.close();
    await this.open();
  }

  #ask() {
    const opening = this.#stream()
      .then((stream) => {
        if (this.opening !== opening) {
          stream.getTracks().forEach((track) => track.stop());
          throw new NoMicrophone("closed");
        }
        this.stream = stream;
        this.isMissing = false;
        this.#watch(stream);
      })
      .finally(() => {
        if (this.opening === opening) this.opening = null;
      });
    return opening;
  }

  async #stream() {
    if (!navigator.mediaDevices?.getUserMedia) throw new NoMicrophone("insecure");
    try {
      return await navigator.mediaDevices.getUserMedia({ audio: WANTED });
    } catch (/** @type {any} */ error) {
      throw new NoMicrophone(CODES[error.name] ?? "busy");
    }
  }

  /** @param {MediaStream} stream */
  #watch(stream) {
    const { track } = this;
    this.#apply();
    const isOurs = () => this.stream === stream;
    track.addEventListener("ended", () => isOurs() && this.#fallBack());
    for (const event of ["mute", "unmute"]) {
      track.addEventListener(event, () => isOurs() && this.onChange());
    }
  }

  /**
   * Replaces a microphone that was unplugged by the system's next one, or waits until there is one.
   */
  async #fallBack() {
    this.close();
    try {
      await this.open();
    } catch (/** @type {any} */ error) {
      if (error.code === "closed") return;
      this.isMissing = true;
    }
    this.onChange();
  }

  // Safari does not always report that a track ended.
  #devicesChanged() {
    const isGone = this.stream !== null && this.track.readyState === "ended";
    if (isGone || (this.isMissing && !this.opening)) this.#fallBack();
  }

  #silence() {
    this.silent ??= this.context().createMediaStreamDestination().stream.getAudioTracks()[0];
    return this.silent;
  }
}
