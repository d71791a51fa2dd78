// Markdown of answers as descriptions of elements: paragraphs, lists, code, bold, italic, links. What
// is not one of these stays text. Nothing of the answer ever becomes HTML.

import { h } from "./keyed.js";

/** @typedef {import("./keyed.js").Child} Child */

const FENCE = /^\s*(```|~~~)/;
const HEADING = /^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$/;
const BULLET = /^\s*[-*+]\s+(.*)$/;
const NUMBER = /^\s*(\d{1,9})[.)]\s+(.*)$/;

// In the order in which they are tried at each place: code, bold, italic, link, bare address. An
// opening mark has no space after it, a closing one none before it, so that "2 * 3 * 4" stays.
const INLINE = new RegExp(
  [
    "`(?<code>[^`]+)`",
    "\\*\\*(?<bold>\\S(?:.*?\\S)?)\\*\\*",
    "(?<![\\w*])\\*(?<italic>[^\\s*](?:[^*]*[^\\s*])?)\\*(?![\\w*])",
    "(?<![\\w_])_(?<slanted>[^\\s_](?:[^_]*[^\\s_])?)_(?![\\w_])",
    "\\[(?<text>[^\\]]+)\\]\\((?<target>[^\\s()]+)\\)",
    "(?<bare>https?:\\/\\/[^\\s<>()]*[^\\s<>().,;:!?'\"])",
  ].join("|"),
  "gu",
);

/**
 * Describes the blocks of a text. An unfinished one, as while it is streamed, is described as far as
 * it goes.
 *
 * @param {string} text
 * @returns {Child[]}
 */
export function markdown(text) {
  const lines = text.split(/\r?\n/);
  /** @type {Child[]} */
  const blocks = [];
  let next = 0;
  while (next < lines.length) {
    const [block, end] = blockAt(lines, next, blocks.length);
    if (block) blocks.push(block);
    next = end;
  }
  return blocks;
}

/**
 * @param {string[]} lines
 * @param {number} start
 * @param {number} key
 * @returns {[block: Child, end: number]}
 */
function blockAt(lines, start, key) {
  const line = lines[start];
  if (!line.trim()) return [null, start + 1];
  if (FENCE.test(line)) return codeAt(lines, start, key);
  const heading = HEADING.exec(line);
  if (heading)
    return [h("p", { key: `${key} p` }, h("strong", {}, ...inline(heading[1]))), start + 1];
  if (BULLET.test(line)) return listAt(lines, start, key, BULLET, "ul");
  if (NUMBER.test(line)) return listAt(lines, start, key, NUMBER, "ol");
  let end = start + 1;
  while (end < lines.length && isParagraph(lines[end])) end += 1;
  const said = lines.slice(start, end).map((one) => one.trim());
  return [h("p", { key: `${key} p` }, ...inline(said.join(" "))), end];
}

/** @param {string} line */
const isParagraph = (line) =>
  line.trim() !== "" && ![FENCE, HEADING, BULLET, NUMBER].some((begin) => begin.test(line));

/**
 * @param {string[]} lines
 * @param {number} start of the opening fence
 * @param {number} key
 * @returns {[block: Child, end: number]}
 */
function codeAt(lines, start, key) {
  const closing = lines.findIndex((line, index) => index > start && FENCE.test(line));
  const end = closing < 0 ? lines.length : closing;
  const code = lines.slice(start + 1, end).join("\n");
  // It may be wider than the page: a region that scrolls needs the keyboard.
  return [h("pre", { key: `${key} pre`, tabindex: "0" }, h("code", {}, code)), end + 1];
}

/**
 * @param {string[]} lines
 * @param {number} start
 * @param {number} key
 * @param {RegExp} mark of an item; its last group is the item's text
 * @param {"ul" | "ol"} tag
 * @returns {[block: Child, end: number]}
 */
function listAt(lines, start, key, mark, tag) {
  /** @type {string[]} */
  const items = [];
  let end = start;
  while (end < lines.length) {
    const item = mark.exec(lines[end]);
    if (item) items.push(item[item.length - 1]);
    else if (/^\s+\S/.test(lines[end]) && isParagraph(lines[end])) {
      items[items.length - 1] += ` ${lines[end].trim()}`;
    } else break;
    end += 1;
  }
  const first = tag === "ol" ? NUMBER.exec(lines[start])?.[1] : null;
  const drawn = items.map((item, index) => h("li", { key: index }, ...inline(item)));
  return [h(tag, { key: `${key} ${tag}`, start: first }, ...drawn), end];
}

/** @param {string} text @returns {Child[]} */
function inline(text) {
  /** @type {Child[]} */
  const spans = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > end) spans.push(text.slice(end, found.index));
    spans.push(span(found));
    end = found.index + found[0].length;
  }
  if (end < text.length) spans.push(text.slice(end));
  return spans;
}

/** @param {RegExpExecArray} found @returns {Child} */
function span(found) {
  const { code, bold, italic, slanted, text, target, bare } = found.groups ?? {};
  if (code) return h("code", {}, code);
  if (bold) return h("strong", {}, ...inline(bold));
  if (italic || slanted) return h("em", {}, ...inline(italic || slanted));
  const address = webAddress(target ?? bare);
  if (!address) return found[0];
  const props = { href: address, rel: "noopener noreferrer", target: "_blank" };
  return h("a", props, text ?? bare);
}

/**
 * Returns the address if it leads to a web page: `javascript:` and the like stay text.
 *
 * @param {string} text
 */
function webAddress(text) {
  if (!URL.canParse(text)) return null;
  const { protocol, href } = new URL(text);
  return protocol === "https:" || protocol === "http:" ? href : null;
}
