// The state of the page in one place. Parts set what they learn, and views watch what they show.

/** @template {object} State */
export class Store {
  /** @type {{ names: (keyof State)[], show: (state: State, before: State | null) => void, seen: State | null }[]} */
  #watchers = [];
  #isWaiting = false;

  /** @param {State} state */
  constructor(state) {
    this.state = state;
  }

  /** Changes values. They are replaced, never modified in place. @param {Partial<State>} changes */
  set(changes) {
    const names = /** @type {(keyof State)[]} */ (Object.keys(changes));
    if (names.every((name) => changes[name] === this.state[name])) return;
    this.state = { ...this.state, ...changes };
    this.#wait();
  }

  /**
   * Calls `show` soon, and again after a change of one of `names`. Several changes at once make one
   * call. Watchers are called in the order in which they were added.
   *
   * @param {(keyof State)[]} names
   * @param {(state: State, before: State | null) => void} show `before` is the state of its
   *   last call; null at first
   */
  watch(names, show) {
    this.#watchers.push({ names, show, seen: null });
    this.#wait();
  }

  #wait() {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    queueMicrotask(() => {
      this.#isWaiting = false;
      this.#show();
    });
  }

  #show() {
    const { state } = this;
    for (const watcher of this.#watchers) {
      const { names, seen, show } = watcher;
      if (seen && names.every((name) => seen[name] === state[name])) continue;
      watcher.seen = state;
      show(state, seen);
    }
  }
}
