// The state of the page in one place. The parts of the page set the values that they receive, and views
// watch the values that they show.

/** @template {object} State */
export class Store {
  // shown: the state at the watcher's last call; null before the first one
  /** @type {{ names: (keyof State)[], show: (state: State, before: State | null) => void, shown: State | null }[]} */
  #watchers = [];
  #isScheduled = false;

  /** @param {State} state */
  constructor(state) {
    this.state = state;
  }

  /** Changes values. They are replaced, never modified in place. @param {Partial<State>} changes */
  set(changes) {
    const names = /** @type {(keyof State)[]} */ (Object.keys(changes));
    if (names.every((name) => changes[name] === this.state[name])) return;
    this.state = { ...this.state, ...changes };
    this.#schedule();
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
    this.#watchers.push({ names, show, shown: null });
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#callWatchers();
    });
  }

  #callWatchers() {
    const { state } = this;
    for (const watcher of this.#watchers) {
      const { names, shown, show } = watcher;
      if (shown && names.every((name) => shown[name] === state[name])) continue;
      watcher.shown = state;
      show(state, shown);
    }
  }
}
