// The open view, as the part of the address after `#`, so that links and the back button work.

const PATHS = new Set(["/", "/devices", "/kiosk"]);

/**
 * Returns the open view. It stands after `#`, because the server has paths of its own. A `#key=...`
 * is not a view.
 */
function pathNow() {
  const path = location.hash.slice(1);
  return PATHS.has(path) ? path : "/";
}

/** Keeps `path` in the store equal to the address. */
export class Router {
  /** @param {import("./state/store.js").Store<any>} store */
  constructor(store) {
    this.store = store;
    const follow = () => store.set({ path: pathNow() });
    addEventListener("popstate", follow);
    follow();
  }

  /** Opens the view at `path`. @param {string} path */
  go(path) {
    if (this.store.state.path === path) return;
    this.store.set({ path });
    history.pushState({ isOpened: true }, "", `#${path}`);
  }

  /** Returns to the conversation, also if the user did not come from there. */
  leave() {
    if (this.store.state.path === "/") return;
    this.store.set({ path: "/" });
    if (history.state?.isOpened) history.back();
    else history.replaceState(null, "", location.pathname + location.search);
  }
}
