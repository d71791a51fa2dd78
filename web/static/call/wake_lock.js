// Keeps the screen of a phone on while the user talks hands-free: the microphone sleeps with it.

export class WakeLock {
  constructor() {
    this.isWanted = false;
    /** @type {WakeLockSentinel | null} */
    this.lock = null;
    // Browsers take the lock away from a hidden page, and do not give it back.
    document.addEventListener("visibilitychange", () => this.#ask());
  }

  /**
   * Holds the screen on or lets it go; asks nothing of the system while that stays the same.
   *
   * @param {boolean} isWanted
   */
  want(isWanted) {
    if (this.isWanted === isWanted) return;
    this.isWanted = isWanted;
    if (isWanted) this.#ask();
    else this.#letGo();
  }

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
      // A low battery or a policy forbids it: then the screen goes dark as it always did.
    }
  }

  #letGo() {
    const { lock } = this;
    this.lock = null;
    lock?.release().catch(() => {});
  }
}
