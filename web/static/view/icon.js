// The page's outline icons.

import { h } from "./keyed.js";

// 24x24 outlines, drawn for this page.
/** @type {Record<string, string>} */
const PATHS = {
  mic: "M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3zM6 11a6 6 0 0 0 12 0M12 17v4M9 21h6",
  mic_off:
    "M9 9v2a3 3 0 0 0 4.500 2.600M15 10.500V6a3 3 0 0 0-5.900-.800M6 11a6 6 0 0 0 9.500 4.900M18 11a6 6 0 0 1-.500 2.400M12 17v4M9 21h6M4 3l16 18",
  volume: "M4 10v4h3l5 4V6L7 10zM15.500 9a4 4 0 0 1 0 6M18 6.500a8 8 0 0 1 0 11",
  stop: "M7 7h10v10H7z",
  wave: "M4 10v4M8 7v10M12 4v16M16 7v10M20 10v4",
  dots: "M4 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0M18 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0",
  send: "M12 19V5M6 11l6-6 6 6",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600L19 19M5 19l1.400-1.400M17.600 6.400L19 5",
  sliders: "M4 7h9M17 7h3M4 12h3M11 12h9M4 17h11M19 17h1M15 5v4M9 10v4M17 15v4",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  close: "M6 6l12 12M18 6L6 18",
  light:
    "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.700 10.700c.5.5.7 1 .7 1.600V16h6v-.7c0-.6.2-1.100.7-1.600A6 6 0 0 0 12 3z",
  lamp: "M8 3h8l3 8H5zM12 11v9M8 20h8",
  switch: "M12 3v8M7.500 6a7 7 0 1 0 9 0",
  coffee_machine:
    "M5 9h11v5a4 4 0 0 1-4 4H9a4 4 0 0 1-4-4zM16 10h1.500a2.500 2.500 0 0 1 0 5H16M8 3v3M12 3v3M5 21h11",
  pump: "M12 3c3.500 4.500 6 7.500 6 11a6 6 0 0 1-12 0c0-3.500 2.500-6.500 6-11z",
  cover: "M4 4h16M5 4v16M19 4v16M5 9h14M5 14h14",
  curtain: "M3 4h18M5 4v16c3-2 5-8 5-16M19 4v16c-3-2-5-8-5-16",
  window: "M5 3h14v18H5zM12 3v18M5 12h14",
  door: "M6 21V3h12v18M4 21h16M14.500 12h.01",
  garage: "M3 21V9l9-5 9 5v12M7 21v-8h10v8M7 17h10",
  climate: "M14 14.500V5a2 2 0 0 0-4 0v9.500a4 4 0 1 0 4 0zM12 11v6",
  fan: "M12 12c-1-3-1-8 2-8s3 5-2 8zM12 12c3-1 8-1 8 2s-5 3-8-2zM12 12c1 3 1 8-2 8s-3-5 2-8zM12 12c-3 1-8 1-8-2s5-3 8 2z",
  media_player:
    "M9 18V6l10-2v12M9 18a2.500 2.500 0 1 1-5 0 2.500 2.500 0 0 1 5 0zM19 16a2.500 2.500 0 1 1-5 0 2.500 2.500 0 0 1 5 0z",
  tv: "M3 5h18v12H3zM8 21h8",
  lock: "M6 11h12v10H6zM9 11V7a3 3 0 0 1 6 0v4M12 15v2",
  unlocked: "M6 11h12v10H6zM9 11V7a3 3 0 0 1 5.800-1M12 15v2",
  speaker: "M7 3h10v18H7zM12 11.500a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 7h.01",
  key: "M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM10.900 12.100L20 3M16 7l3 3",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.500l4.500 4.500L19 7",
};

/**
 * Describes an outline icon. It is hidden from screen readers, because the text next to it says the same.
 *
 * @param {string} name
 */
export const icon = (name) =>
  h(
    "svg",
    { key: name, viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" },
    h("path", { d: PATHS[name] ?? PATHS.switch }),
  );

/** Returns whether there is an icon of this name. @param {string} name */
export const hasIcon = (name) => name in PATHS;
