// The microphone, or silence in its place: a call always has a track, so it is never renegotiated.

const CONSTRAINTS = {
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

/** Codes of `NoMicrophone` by the name of the browser's error. @type {Record<string, string>} */
const ERROR_CODES = {
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
   * @param {() => void} parts.onChange the device went away, another one takes its place, or the system
   *   mutes or unmutes it
   */
  constructor({ context, onChange }) {
    this.context = context;
    this.onChange = onChange;
    /** @type {MediaStream | null} */
    this.stream = null;
    /** @type {Promise<void> | null} while the browser asks the user */
    this.opening = null;
    /** @type {MediaStreamTrack | null} made when it is first needed */
    this.silentTrack = null;
    this.isEnabled = true; // sound goes through, in contrast to a released button of push-to-talk
    this.isSilenced = false; // by the user, with the mute button
    this.deviceId = ""; // of the wanted microphone; empty: the system's choice
    this.isMissing = false; // the user wants it, and there is none
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.#devicesChanged());
  }

  get isOpen() {
    return this.stream !== null;
  }

  /**
   * True if the system replaces the sound by silence: because of a phone call, another application, or
   * a switch of the device.
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
    this.opening ??= this.#open();
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

  #open() {
    const opening = this.#requestStream()
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

  async #requestStream() {
    if (!navigator.mediaDevices?.getUserMedia) throw new NoMicrophone("insecure");
    try {
      return await navigator.mediaDevices.getUserMedia({ audio: this.#constraints() });
    } catch (/** @type {any} */ error) {
      throw new NoMicrophone(ERROR_CODES[error.name] ?? "busy");
    }
  }

  /** Another microphone takes the place of one that is not there. */
  #constraints() {
    return this.deviceId ? { ...CONSTRAINTS, deviceId: { ideal: this.deviceId } } : CONSTRAINTS;
  }

  /** Reports what happens to a stream while it is in use. @param {MediaStream} stream */
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
    this.silentTrack ??= this.context().createMediaStreamDestination().stream.getAudioTracks()[0];
    return this.silentTrack;
  }
}
