// The sound of a conversation, both sides mixed, in the memory of this tab. Only while the user wants
// it, and it is never sent anywhere.

const SLICE_MS = 1_000; // the sound that a download may lack at its end
const MAX_BYTES = 100_000_000; // more than an hour in every format of a browser; the recording ends there

/** @typedef {"user" | "assistant"} Side */

export class Recording {
  /** @type {MediaRecorder | null} */
  #recorder = null;
  /** @type {MediaStreamAudioDestinationNode | null} */
  #mix = null;
  /** @type {Map<Side, MediaStream | null>} */
  #streams = new Map();
  /** @type {Map<Side, AudioNode>} */
  #nodes = new Map();
  /** @type {Blob[]} */
  #pieces = [];
  #bytes = 0;

  /**
   * @param {() => AudioContext} context returns the page's AudioContext
   * @param {() => void} onChange called when there is sound to download, or none any more
   */
  constructor(context, onChange) {
    this.context = context;
    this.onChange = onChange;
  }

  /** Whether this browser can record. */
  static isPossible = typeof MediaRecorder === "function";

  get hasSound() {
    return this.#bytes > 0;
  }

  /** Records both sides from now on. */
  start() {
    if (this.#recorder) return;
    this.#mix = this.context().createMediaStreamDestination();
    const recorder = new MediaRecorder(this.#mix.stream);
    this.#recorder = recorder;
    recorder.addEventListener("dataavailable", ({ data }) => {
      if (this.#recorder === recorder) this.#take(data);
    });
    recorder.start(SLICE_MS);
    for (const side of this.#streams.keys()) this.#connect(side);
  }

  /** Forgets all sound, and records no more. */
  forget() {
    const recorder = this.#recorder;
    this.#recorder = this.#mix = null;
    if (recorder && recorder.state !== "inactive") recorder.stop();
    for (const node of this.#nodes.values()) node.disconnect();
    this.#nodes.clear();
    this.#pieces = [];
    this.#bytes = 0;
    this.onChange();
  }

  /**
   * Takes the sound of one side from this stream from now on.
   *
   * @param {Side} side
   * @param {MediaStream | null} stream
   */
  listen(side, stream) {
    this.#streams.set(side, stream);
    this.#connect(side);
  }

  /** Returns the sound so far, as one file. */
  file() {
    return new Blob(this.#pieces, { type: this.#pieces[0]?.type });
  }

  /** @param {Side} side */
  #connect(side) {
    const stream = this.#streams.get(side);
    this.#nodes.get(side)?.disconnect();
    this.#nodes.delete(side);
    if (!this.#mix || !stream?.getAudioTracks().length) return;
    const node = this.context().createMediaStreamSource(stream);
    node.connect(this.#mix);
    this.#nodes.set(side, node);
  }

  /** @param {Blob} piece */
  #take(piece) {
    if (!piece.size) return;
    const isFirst = !this.hasSound;
    this.#pieces.push(piece);
    this.#bytes += piece.size;
    if (this.#bytes >= MAX_BYTES) this.#recorder?.stop();
    if (isFirst) this.onChange();
  }
}
