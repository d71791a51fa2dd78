// Levels, drawn as a ribbon: the user's sound runs from the left into the microphone button, the
// assistant's voice runs out to the right. The same levels are properties of the button's style.

import { update } from "../view/keyed.js";

/** @typedef {"input" | "output"} Side */

const HISTORY = 90; // bars per side; at 30 a second that is the last three seconds
const FLOOR_DB = -60; // dBFS; quieter sound counts as silence
const REST_MS = 25; // after a drawing, until the screen's next frame: with 60 frames a second, every other one
const BAR_PX = 3;
const GAP_PX = 2;

/** Measures a stream. `level()` is 0 (at or below -60 dBFS) to 1 (0 dBFS). */
export class Meter {
  /**
   * @param {AudioContext} context
   * @param {MediaStream} stream
   */
  constructor(context, stream) {
    this.source = context.createMediaStreamSource(stream);
    this.analyser = context.createAnalyser();
    this.analyser.fftSize = 1024;
    this.source.connect(this.analyser);
    this.samples = new Float32Array(this.analyser.fftSize);
  }

  /** Returns the level of the last 1024 samples. */
  level() {
    this.analyser.getFloatTimeDomainData(this.samples);
    let sum = 0;
    for (const sample of this.samples) sum += sample * sample;
    const db = 10 * Math.log10(sum / this.samples.length + 1e-12);
    return Math.min(1, Math.max(0, 1 - db / FLOOR_DB));
  }

  close() {
    this.source.disconnect();
  }
}

/** Draws the ribbon while a meter is connected, and rests otherwise. */
export class Ribbon {
  /**
   * @param {HTMLElement} canvas
   * @param {HTMLElement} button
   */
  constructor(canvas, button) {
    this.canvas = /** @type {HTMLCanvasElement} */ (canvas);
    this.button = button;
    /** @type {Record<Side, Meter | null>} */
    this.meters = { input: null, output: null };
    /** @type {Record<Side, number[]>} levels, the newest first */
    this.history = { input: [], output: [] };
    this.running = false;
    /** @type {import("../view/keyed.js").Styles} */
    this.shown = {};
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.#draw()).observe(canvas);
  }

  /**
   * Shows the levels of `meter`; null removes the meter.
   *
   * @param {Side} side
   * @param {Meter | null} meter
   */
  connect(side, meter) {
    this.meters[side]?.close();
    this.meters[side] = meter;
    if (!meter) this.#show(side, 0);
    if (!this.running && (this.meters.input || this.meters.output)) {
      this.running = true;
      this.#next();
    }
  }

  /** Draws again after `REST_MS`. A callback in every frame of the screen would cost twice as much. */
  #next() {
    setTimeout(() => requestAnimationFrame(() => this.#frame()), REST_MS);
  }

  #frame() {
    for (const side of /** @type {const} */ (["input", "output"])) this.#sample(side);
    this.#draw();
    const hasSound = [...this.history.input, ...this.history.output].some((level) => level > 0);
    this.running = Boolean(this.meters.input || this.meters.output || hasSound);
    if (this.running) this.#next();
  }

  /** @param {Side} side */
  #sample(side) {
    const level = this.meters[side]?.level() ?? 0;
    this.history[side].unshift(level);
    this.history[side].length = Math.min(this.history[side].length, HISTORY);
    this.#show(side, level);
  }

  /**
   * Publishes a level as a property of the button's style.
   *
   * @param {Side} side
   * @param {number} level
   */
  #show(side, level) {
    this.shown = { ...this.shown, [`--${side}`]: level.toFixed(2) };
    update(this.button, { style: this.shown });
  }

  #draw() {
    const { canvas } = this;
    const scale = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    this.#side(pen, this.history.input, -1, style.getPropertyValue("--hear"), width, height);
    this.#side(pen, this.history.output, 1, style.getPropertyValue("--speak"), width, height);
  }

  /**
   * Draws the bars of one side. Loud sound makes a tall bar, and older bars are fainter.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {number[]} levels
   * @param {number} direction -1: to the left
   * @param {string} color
   * @param {number} width
   * @param {number} height
   */
  #side(pen, levels, direction, color, width, height) {
    const step = BAR_PX + GAP_PX;
    const room = Math.floor(width / 2 / step);
    pen.fillStyle = color;
    for (let index = 0; index < room; index += 1) {
      // With reduced motion there is no running history, only the present level.
      const level = (this.still.matches ? levels[0] : levels[index]) ?? 0;
      const bar = Math.max(2, level * level * height);
      pen.globalAlpha = (1 - index / room) * (level > 0.02 ? 0.9 : 0.35);
      const x = width / 2 + direction * (index * step + GAP_PX) - (direction < 0 ? BAR_PX : 0);
      pen.beginPath();
      pen.roundRect(x, (height - bar) / 2, BAR_PX, bar, BAR_PX / 2);
      pen.fill();
    }
  }
}
