// The microphone, and silence in its place: a call always has a track, so it never renegotiates.

const WANTED = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };

/** `code`: insecure, no_microphone, denied, busy. */
export class NoMicrophone extends Error {
  constructor(code) {
    super(code);
    this.code = code;
  }
}

const CODES = {
  NotFoundError: "no_microphone", OverconstrainedError: "no_microphone",
  NotAllowedError: "denied", SecurityError: "denied",
  NotReadableError: "busy", AbortError: "busy",
};

export class Microphone {
  /** `context`: a function that gives the page's AudioContext; `onEnded` when it is unplugged. */
  constructor({ context, onEnded }) {
    this.context = context;
    this.onEnded = onEnded;
    this.stream = null;
    this.silent = null;
  }

  get isOpen() {
    return this.stream !== null;
  }

  /** The track to send now. */
  get track() {
    return this.stream ? this.stream.getAudioTracks()[0] : this.#silence();
  }

  /** Ask for the microphone; throws `NoMicrophone`. */
  async open() {
    if (this.stream) return;
    if (!navigator.mediaDevices?.getUserMedia) throw new NoMicrophone("insecure");
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio: WANTED });
    } catch (error) {
      throw new NoMicrophone(CODES[error.name] ?? "busy");
    }
    this.track.addEventListener("ended", () => {
      this.stream = null;
      this.onEnded();
    });
  }

  /** Let sound through or not, without giving the microphone back. */
  enable(isEnabled) {
    if (this.stream) this.track.enabled = isEnabled;
  }

  /** Give the microphone back: the browser's recording mark goes out. */
  close() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
  }

  #silence() {
    this.silent ??= this.context().createMediaStreamDestination().stream.getAudioTracks()[0];
    return this.silent;
  }
}
