// One recording of a voice, from the microphone. The server judges its quality while it grows.

import { Microphone } from "../call/microphone.js";

const SLICE_MS = 1_000; // how often the sound so far is looked at

/** Whether this browser can record. */
export const canRecord = () => typeof MediaRecorder === "function";

export class VoiceTake {
  /** @type {Blob[]} */
  #pieces = [];
  /** @type {MediaRecorder | null} */
  #recorder = null;

  /**
   * @param {() => AudioContext} context returns the page's AudioContext
   * @param {string} deviceId id of the microphone; empty: the system's choice
   * @param {(soFar: Blob) => void} onGrown gets all sound so far, about every second
   */
  constructor(context, deviceId, onGrown) {
    this.onGrown = onGrown;
    this.microphone = new Microphone({ context, onChange: () => undefined });
    this.microphone.deviceId = deviceId;
  }

  /** Begins. Throws `NoMicrophone`. */
  async start() {
    await this.microphone.open();
    const recorder = new MediaRecorder(/** @type {MediaStream} */ (this.microphone.stream));
    this.#recorder = recorder;
    recorder.addEventListener("dataavailable", ({ data }) => {
      if (!data.size) return;
      this.#pieces.push(data);
      if (recorder.state === "recording") this.onGrown(this.#file());
    });
    recorder.start(SLICE_MS);
  }

  /** Ends, and returns all sound. @returns {Promise<Blob>} */
  async stop() {
    const recorder = this.#recorder;
    if (recorder && recorder.state !== "inactive") {
      const stopped = new Promise((resolve) => {
        recorder.addEventListener("stop", resolve);
      });
      recorder.stop();
      await stopped;
    }
    this.cancel();
    return this.#file();
  }

  /** Ends, and forgets the sound. */
  cancel() {
    const recorder = this.#recorder;
    this.#recorder = null;
    if (recorder && recorder.state !== "inactive") recorder.stop();
    this.microphone.close();
  }

  #file() {
    return new Blob(this.#pieces, { type: this.#pieces[0]?.type });
  }
}
