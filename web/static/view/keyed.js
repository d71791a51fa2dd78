// Small helpers for building the page's elements.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties (`class`, `data-*`, `aria-*`, handlers as functions) and children. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set text only when it differs, so that screen readers and transitions stay calm. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const byId = (id) => document.getElementById(id);

/**
 * Change `old` until it looks like `drawn`, keeping every node that can stay: text that is selected,
 * focus and running animations survive. Whether a `details` is open is left to the user.
 * Handlers stay those of `old`, so this is for elements that have none of their own.
 */
export function patch(old, drawn) {
  patchAttributes(old, drawn);
  patchChildren(old, [...drawn.childNodes]);
}

/** The same for what is in `old`. */
export function patchChildren(old, drawn) {
  const before = [...old.childNodes];
  const children = drawn.map((child) => {
    const index = before.findIndex((one) => isAlike(one, child));
    if (index < 0) return child;
    const [kept] = before.splice(index, 1);
    if (kept.nodeType === Node.TEXT_NODE) patchText(kept, child.data);
    else patch(kept, child);
    return kept;
  });
  for (const one of before) one.remove();
  arrange(old, children);
}

/** Put `children` into `parent` in this order; who stands right is not moved. */
export function arrange(parent, children) {
  children.forEach((child, index) => {
    if (parent.childNodes[index] !== child)
      parent.insertBefore(child, parent.childNodes[index] ?? null);
  });
}

const isAlike = (a, b) =>
  a.nodeName === b.nodeName && (a.classList?.[0] ?? "") === (b.classList?.[0] ?? "");

function patchAttributes(old, drawn) {
  for (const { name } of [...old.attributes]) {
    if (!drawn.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of drawn.attributes) {
    if (name !== "open" && name !== "style" && old.getAttribute(name) !== value)
      old.setAttribute(name, value);
  }
  // Through the style object: the page's policy allows no style attributes.
  if (old.style.cssText !== drawn.style.cssText) old.style.cssText = drawn.style.cssText;
}

/** Only what differs is replaced, so that a selection in the beginning of the text lasts. */
function patchText(node, text) {
  let same = 0;
  while (same < node.length && node.data[same] === text[same]) same += 1;
  if (same < node.length || same < text.length)
    node.replaceData(same, node.length - same, text.slice(same));
}

/** Let the keyboard scroll `element` while more is in it than fits; `element` needs a name. */
export function scrollableByKeyboard(element) {
  const look = () => {
    const isLarger =
      element.scrollHeight > element.clientHeight + 1 ||
      element.scrollWidth > element.clientWidth + 1;
    if (isLarger) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  };
  new ResizeObserver(look).observe(element);
  new MutationObserver(look).observe(element, { childList: true, subtree: true });
}

// 24x24 outlines, drawn for this page.
const PATHS = {
  mic: "M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3zM6 11a6 6 0 0 0 12 0M12 17v4M9 21h6",
  stop: "M7 7h10v10H7z",
  wave: "M4 10v4M8 7v10M12 4v16M16 7v10M20 10v4",
  dots: "M6 12h.01M12 12h.01M18 12h.01",
  send: "M12 19V5M6 11l6-6 6 6",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600L19 19M5 19l1.400-1.400M17.600 6.400L19 5",
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
  bell: "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
  check: "M5 12.500l4.500 4.500L19 7",
};

/** One of our outline icons; decoration only, the text beside it says the same. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 24 24",
    class: "icon",
    "aria-hidden": "true",
    focusable: "false",
  }))
    svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name] ?? PATHS.switch);
  svg.append(path);
  return svg;
}

export const hasIcon = (name) => name in PATHS;
