// The sound of one text while it comes in: its samples, their levels, and the file to save.

/** Rate of the format `pcm` of /v1/audio/speech. Its samples are mono and have 16 bits. */
export const RATE_HZ = 24_000;

/** Samples of one level: 20 ms. */
export const SLICE_SAMPLES = RATE_HZ / 50;

const SAMPLE_BYTES = 2;
const WAV_HEADER_BYTES = 44;

export class Sound {
  /** @type {number[]} largest sample of each whole slice, 0 to 1 */
  levels = [];
  /** Number of samples so far. */
  samples = 0;
  /** @type {Int16Array<ArrayBuffer>[]} */
  #pieces = [];
  /** First byte of a sample whose second one has not come yet. */
  #half = new Uint8Array();
  #peak = 0;

  get seconds() {
    return this.samples / RATE_HZ;
  }

  /** Adds bytes, and returns their samples. The network may cut the bytes anywhere. @param {Uint8Array} bytes */
  push(bytes) {
    const whole = new Uint8Array(this.#half.length + bytes.length);
    whole.set(this.#half);
    whole.set(bytes, this.#half.length);
    const even = whole.length - (whole.length % SAMPLE_BYTES);
    this.#half = whole.slice(even);
    const piece = new Int16Array(whole.buffer, 0, even / SAMPLE_BYTES);
    this.#pieces.push(piece);
    this.#measure(piece);
    return piece;
  }

  /** Returns the sound so far as a WAV file. */
  wav() {
    const header = new DataView(new ArrayBuffer(WAV_HEADER_BYTES));
    const bytes = this.samples * SAMPLE_BYTES;
    const text = (/** @type {number} */ at, /** @type {string} */ letters) =>
      [...letters].forEach((letter, index) => header.setUint8(at + index, letter.charCodeAt(0)));
    text(0, "RIFF");
    header.setUint32(4, WAV_HEADER_BYTES - 8 + bytes, true);
    text(8, "WAVEfmt ");
    header.setUint32(16, 16, true); // bytes of the description that follows
    header.setUint16(20, 1, true); // samples are whole numbers
    header.setUint16(22, 1, true); // channels
    header.setUint32(24, RATE_HZ, true);
    header.setUint32(28, RATE_HZ * SAMPLE_BYTES, true);
    header.setUint16(32, SAMPLE_BYTES, true);
    header.setUint16(34, 8 * SAMPLE_BYTES, true);
    text(36, "data");
    header.setUint32(40, bytes, true);
    return new Blob([header, ...this.#pieces], { type: "audio/wav" });
  }

  /** @param {Int16Array} piece */
  #measure(piece) {
    for (const sample of piece) {
      this.#peak = Math.max(this.#peak, Math.abs(sample) / 32_768);
      this.samples += 1;
      if (this.samples % SLICE_SAMPLES === 0) {
        this.levels.push(this.#peak);
        this.#peak = 0;
      }
    }
  }
}
