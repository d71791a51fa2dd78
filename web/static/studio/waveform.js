// The sound of a text as bars from its beginning to its end. What was heard has another colour.

const BAR_PX = 3;
const GAP_PX = 2;
const REST_MS = 25; // after a drawing, until the screen's next frame: with 60 frames a second, every other one

/** @typedef {import("./reading.js").Reading} Reading */

export class Waveform {
  /** @type {Reading | null} */
  #reading = null;
  /** Levels that the drawn bars show, and bars that are drawn as heard. */
  #drawn = { levels: 0, heard: 0 };
  #isRunning = false;

  /** @param {HTMLElement} canvas */
  constructor(canvas) {
    this.canvas = /** @type {HTMLCanvasElement} */ (canvas);
    new ResizeObserver(() => this.#drawAll()).observe(canvas);
  }

  /** Shows this text from now on, until it is over. @param {Reading | null} reading */
  show(reading) {
    this.#reading = reading;
    this.#drawAll();
    if (!this.#isRunning) this.#next();
  }

  #next() {
    this.#isRunning = this.#reading !== null && !this.#reading.isOver;
    if (this.#isRunning) setTimeout(() => requestAnimationFrame(() => this.#frame()), REST_MS);
  }

  #frame() {
    this.#draw();
    this.#next();
  }

  /** Draws what has changed: all bars after new sound, otherwise those that were heard since. */
  #draw() {
    if (!this.#reading) return;
    const { levels } = this.#reading.sound;
    if (levels.length !== this.#drawn.levels) this.#drawAll();
    else this.#bars(this.#drawn.heard, this.#heardBars());
  }

  #drawAll() {
    const { canvas } = this;
    const scale = devicePixelRatio;
    const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
    if (canvas.width !== Math.round(width)) canvas.width = Math.round(width);
    if (canvas.height !== Math.round(height)) canvas.height = Math.round(height);
    const pen = canvas.getContext("2d");
    pen?.setTransform(scale, 0, 0, scale, 0, 0);
    pen?.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    this.#drawn = { levels: this.#reading?.sound.levels.length ?? 0, heard: 0 };
    this.#bars(0, this.#count);
  }

  /** Number of bars for which there is room. */
  get #count() {
    return Math.floor(this.canvas.clientWidth / (BAR_PX + GAP_PX));
  }

  #heardBars() {
    const heard = this.#reading?.heardLevels ?? 0;
    return Math.floor((heard * this.#count) / Math.max(1, this.#drawn.levels));
  }

  /**
   * Draws some bars, each in its colour of the moment.
   *
   * @param {number} first
   * @param {number} end
   */
  #bars(first, end) {
    const pen = this.canvas.getContext("2d");
    const levels = this.#reading?.sound.levels ?? [];
    if (!pen || !levels.length || first >= end) return;
    const heard = this.#heardBars();
    const style = getComputedStyle(this.canvas);
    const height = this.canvas.clientHeight;
    const perBar = levels.length / this.#count;
    for (let index = first; index < end; index += 1) {
      const from = Math.floor(index * perBar);
      const to = Math.max(from + 1, Math.floor((index + 1) * perBar));
      // The root shows quiet sound, too.
      const bar = Math.max(2, Math.sqrt(Math.max(...levels.slice(from, to))) * height);
      pen.fillStyle = style.getPropertyValue(index < heard ? "--speak" : "--ink-3");
      const left = index * (BAR_PX + GAP_PX);
      pen.clearRect(left, 0, BAR_PX, height);
      pen.beginPath();
      pen.roundRect(left, (height - bar) / 2, BAR_PX, bar, BAR_PX / 2);
      pen.fill();
    }
    this.#drawn.heard = heard;
  }
}
