// The open view stands in the page's address after `#`, so that links and the back button work. The path
// before it belongs to the server.

const PATHS = new Set(["/", "/devices", "/keys", "/settings", "/kiosk", "/studio"]);

/** Returns the path of the open view. Anything else after `#`, such as `key=...`, is not a view. */
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

  /**
   * Closes the view. If the page opened it, the browser goes back; if the user came by a link to it, the
   * conversation takes its place.
   */
  leave() {
    if (this.store.state.path === "/") return;
    this.store.set({ path: "/" });
    if (history.state?.isOpened) history.back();
    else history.replaceState(null, "", location.pathname + location.search);
  }
}
