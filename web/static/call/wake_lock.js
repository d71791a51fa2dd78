// Keeps the screen of a phone on while the user talks hands-free: with the screen, the phone would
// also turn off the microphone.

export class WakeLock {
  constructor() {
    this.isWanted = false;
    /** @type {WakeLockSentinel | null} */
    this.lock = null;
    // Browsers take the lock from a hidden page and do not give it back.
    document.addEventListener("visibilitychange", () => this.#ask());
  }

  /**
   * Holds the screen on or releases it. A repeated value has no effect.
   *
   * @param {boolean} isWanted
   */
  want(isWanted) {
    if (this.isWanted === isWanted) return;
    this.isWanted = isWanted;
    if (isWanted) this.#ask();
    else this.#letGo();
  }

  /** Asks the browser for the lock if it is wanted and not held. */
  async #ask() {
    if (!this.isWanted || this.lock || document.hidden || !navigator.wakeLock) return;
    try {
      const lock = await navigator.wakeLock.request("screen");
      lock.addEventListener("release", () => {
        if (this.lock === lock) this.lock = null;
      });
      if (this.lock) lock.release();
      else this.lock = lock;
      if (!this.isWanted) this.#letGo();
    } catch {
      // A low battery or a policy forbids it: the screen goes dark as usual.
    }
  }

  /** Releases the lock, if it is held. */
  #letGo() {
    const { lock } = this;
    this.lock = null;
    lock?.release().catch(() => {});
  }
}
