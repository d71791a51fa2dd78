// The only way in which the page changes its elements. A view describes with `h` what it wants to
// show, and `update` changes the elements accordingly. An element stays as long as its key:
// selection, focus, typed text and open details survive.

/**
 * @typedef {string | number | boolean | null | undefined} Attribute
 * @typedef {Record<string, string | null>} Styles CSS properties by name
 * @typedef {(event: any) => unknown} Handler
 * @typedef {{ [name: string]: Attribute | Styles | Handler }} Props
 *   attributes by name (null or false: none), event handlers by the event's name, `style`, `key`
 * @typedef {{ tag: string, kind: string, props: Props, children: Content[] }} Description
 *   an element as it should be; `kind`: what an element must have in common with it to become it
 * @typedef {Description | string} Content
 * @typedef {Content | null | undefined | false} Child a child, or none
 */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "circle"]);

// Properties that a user changes. They are set as properties, because the attribute of the same name is
// only their first value.
const USER_CHANGED = new Set(["value", "checked", "selected"]);

/** The newest description of each element. @type {WeakMap<Node, { props: Props, children: Content[] | null, kind?: string }>} */
const described = new WeakMap();

/**
 * Describes an element. Among its siblings it is found again by `key`, or without a key by its tag
 * and first class.
 *
 * @param {string} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {Description}
 */
export function h(tag, { key, ...props } = {}, ...children) {
  const kind =
    key === undefined ? `${tag}.${String(props.class ?? "").split(" ")[0]}` : `${tag}#${key}`;
  return { tag, kind, props, children: shown(children) };
}

/**
 * Changes `element`, which is in the page's HTML, to these props and children. Props that are not
 * named stay. Only differences from the last update are written, so that the user's changes since
 * then (text in a field, open details) stay, too.
 *
 * @param {Element} element
 * @param {Props} props
 * @param {Child[]} [children] all children; if left out, the present ones stay
 */
export function update(element, props, children) {
  const before = described.get(element);
  const wanted = { ...before, props: { ...before?.props, ...props } };
  apply(element, { ...wanted, children: children ? shown(children) : null });
}

/** Returns an element of the page's HTML. @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

/** Returns the children without the places where there is none. @param {Child[]} children */
const shown = (children) =>
  /** @type {Content[]} */ (
    children.filter((child) => child !== null && child !== undefined && child !== false)
  );

/**
 * Makes an element what its description says.
 *
 * @param {Element} element
 * @param {{ props: Props, children: Content[] | null }} wanted
 */
function apply(element, wanted) {
  const before = described.get(element);
  if (before === wanted) return; // the same description means that nothing changed
  described.set(element, wanted);
  setProps(element, before?.props ?? {}, wanted.props);
  if (wanted.children) setChildren(element, wanted.children);
}

/**
 * Sets the props that differ from the last ones.
 *
 * @param {Element} element
 * @param {Props} before
 * @param {Props} wanted
 */
function setProps(element, before, wanted) {
  for (const name of Object.keys({ ...before, ...wanted })) {
    const value = wanted[name];
    if (typeof value === "function") element.addEventListener(name, handle);
    else if (name === "style") setStyle(element, before.style, value);
    else if (value !== before[name] && typeof before[name] !== "function") {
      setAttribute(element, name, /** @type {Attribute} */ (value));
    }
  }
}

/**
 * Calls the handler of the element's newest description. It is the only listener, so that a view may
 * describe another function each time.
 *
 * @param {Event} event
 */
function handle(event) {
  const handler = described.get(/** @type {Node} */ (event.currentTarget))?.props[event.type];
  if (typeof handler === "function") handler(event);
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {Attribute} value
 */
function setAttribute(element, name, value) {
  if (USER_CHANGED.has(name)) Object.assign(element, { [name]: value ?? "" });
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Sets styles one by one: the page's Content-Security-Policy allows no style attributes.
 *
 * @param {any} element
 * @param {any} before
 * @param {any} wanted
 */
function setStyle(element, before, wanted) {
  for (const name of Object.keys({ ...before, ...wanted })) {
    const value = wanted?.[name] ?? null;
    if (value !== (before?.[name] ?? null)) element.style.setProperty(name, value);
  }
}

/**
 * Makes the children of an element what their descriptions say. A present child of the same kind is kept
 * and changed; missing ones are created, and superfluous ones removed.
 *
 * @param {Element} parent
 * @param {Content[]} wanted
 */
function setChildren(parent, wanted) {
  /** @type {Map<string | undefined, ChildNode[]>} */
  const present = new Map();
  for (const node of parent.childNodes) {
    const kind = node instanceof Text ? "#text" : described.get(node)?.kind;
    const sameKind = present.get(kind);
    if (sameKind) sameKind.push(node);
    else present.set(kind, [node]);
  }
  const nodes = wanted.map((child) => {
    const node = present.get(typeof child === "string" ? "#text" : child.kind)?.shift();
    if (node === undefined) return create(child);
    if (typeof child === "string") setText(/** @type {Text} */ (node), child);
    else apply(/** @type {Element} */ (node), child);
    return node;
  });
  for (const node of [...present.values()].flat()) node.remove();
  arrange(parent, nodes);
}

/** Returns a new node for a description. @param {Content} child */
function create(child) {
  if (typeof child === "string") return document.createTextNode(child);
  const { tag } = child;
  const element = SVG_TAGS.has(tag)
    ? document.createElementNS(SVG, tag)
    : document.createElement(tag);
  apply(element, child);
  return element;
}

/**
 * Replaces only the part that differs, so that a selection at the beginning of the text survives.
 *
 * @param {Text} node
 * @param {string} text
 */
function setText(node, text) {
  let same = 0;
  while (same < node.length && node.data[same] === text[same]) same += 1;
  if (same < node.length || same < text.length) {
    node.replaceData(same, node.length - same, text.slice(same));
  }
}

/**
 * Puts the children into this order. A moved element loses focus and selection, so the child that
 * holds them stays, and the others move around it.
 *
 * @param {Element} parent
 * @param {ChildNode[]} nodes all children of `parent`, and new ones
 */
function arrange(parent, nodes) {
  if (nodes.every((node, index) => parent.childNodes[index] === node)) return;
  const held = [document.activeElement, getSelection()?.anchorNode ?? null];
  const fixed = Math.max(
    0,
    nodes.findIndex((node) =>
      held.some((one) => one && node.parentNode === parent && node.contains(one)),
    ),
  );
  if (nodes[fixed].parentNode !== parent) parent.prepend(nodes[fixed]);
  for (let index = fixed - 1; index >= 0; index -= 1) {
    if (nodes[index].nextSibling !== nodes[index + 1])
      parent.insertBefore(nodes[index], nodes[index + 1]);
  }
  for (let index = fixed + 1; index < nodes.length; index += 1) {
    const next = nodes[index - 1].nextSibling;
    if (next !== nodes[index]) parent.insertBefore(nodes[index], next);
  }
}
