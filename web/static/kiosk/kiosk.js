// The wall display: a view for a tablet on the wall, with large words and without controls.

import { byId, update } from "../view/keyed.js";

const PATH = "/kiosk";

export class KioskView {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../router.js").Router} router
   * @param {() => void} start begins to listen
   */
  constructor(store, router, start) {
    update(byId("kiosk-open"), { click: () => router.go(PATH) });
    update(byId("kiosk-leave"), { click: () => router.leave() });
    addEventListener("keydown", ({ key }) => {
      if (key === "Escape" && store.state.path === PATH) router.leave();
    });
    // A browser gives microphone and loudspeaker only after a touch, and the whole screen, too.
    addEventListener("click", ({ target }) => {
      const { path, connection } = store.state;
      if (path !== PATH || (target instanceof Element && target.closest("button"))) return;
      if (!document.fullscreenElement)
        document.documentElement.requestFullscreen?.().catch(() => {});
      if (connection === "idle") start();
    });
    store.watch(["path"], ({ path }) => {
      const isOpen = path === PATH;
      update(document.documentElement, { "data-view": isOpen ? "kiosk" : null });
      if (!isOpen && document.fullscreenElement) document.exitFullscreen();
    });
  }
}
