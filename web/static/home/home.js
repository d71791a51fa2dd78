// The home: rooms that light up, timers and the shopping list.

import { byId, h, update } from "../view/keyed.js";
import { hasIcon, icon } from "../view/icon.js";
import { scrollableByKeyboard } from "../view/scrolling.js";
import { formatNumber, t } from "../words/translate.js";
import { showShopping, Timers } from "./household.js";

/**
 * @typedef {{ id: string, name: string }} Area
 * @typedef {{ id: string, area: string, name: string, kind: string, device_class: string,
 *   state: string, attributes: { [name: string]: any } }} Entity
 * @typedef {{ areas: Area[], entities: Entity[], timers: import("./household.js").ServerTimer[],
 *   shopping_list: import("./household.js").ShoppingItem[], reach: "here" | "away" | "refused" }} Home
 *   `reach`: `here` if the server reaches the home; `refused` if the home rejects the server's key;
 *   unless it is `here`, the states are old
 * @typedef {import("../view/keyed.js").Styles} Styles
 */

const REACH_TEXTS = { here: "home_live", away: "home_away", refused: "home_refused" };
const ACTIVE = new Set(["on", "open", "playing", "unlocked"]); // states that a room's card names
const CLICKABLE = new Set(["light", "switch", "fan"]); // the kinds that the server switches without a question
const SCROLL_MARGIN_PX = 16; // between a room's card that is scrolled to and the edge of the list

export class HomeView {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("./home_buttons.js").HomeButtons} buttons
   */
  constructor(store, buttons) {
    this.buttons = buttons;
    this.list = byId("areas");
    this.timers = new Timers(byId("timers"), (id) => buttons.cancelTimer(id));
    this.changes = new Changes();
    scrollableByKeyboard(this.list);
    store.watch(["home", "isHomeLive", "language"], (state, before) => {
      this.#showReach(state.home, state.isHomeLive);
      if (!state.home) return;
      const isNew = state.home !== before?.home;
      if (isNew || state.language !== before?.language) this.#showRooms(state.home);
      if (isNew) this.timers.show(state.home.timers);
      else this.timers.draw();
      showShopping(byId("shopping"), state.home.shopping_list, (item) => buttons.tick(item));
    });
  }

  /** Draws all rooms, and scrolls to the last one that changed. @param {Home} home */
  #showRooms(home) {
    const changed = this.changes.take(home.entities);
    const rooms = home.areas.map((area) => ({
      area,
      entities: home.entities.filter((one) => one.area === area.id),
    }));
    update(
      this.list,
      {},
      rooms.map(({ area, entities }) => this.#card(area, entities)),
    );
    const lastChanged = rooms.findLastIndex(({ entities }) =>
      entities.some((one) => changed.has(one.id)),
    );
    if (lastChanged >= 0)
      intoView(this.list, /** @type {HTMLElement} */ (this.list.children[lastChanged]));
  }

  /**
   * Shows whether what the page shows is the present state.
   *
   * @param {Home | null} home
   * @param {boolean | null} isLive whether changes of the home arrive; null: not known yet
   */
  #showReach(home, isLive) {
    if (isLive === null) return;
    const reach = home?.reach ?? "here";
    const isHere = isLive && reach === "here";
    const text = t(isLive ? REACH_TEXTS[reach] : "home_lost");
    update(byId("home-state"), { "data-live": String(isHere) }, [text]);
    update(this.list, { class: isLive && !isHere ? "areas old" : "areas" });
  }

  /**
   * Returns the card of one room.
   *
   * @param {Area} area
   * @param {Entity[]} entities
   */
  #card(area, entities) {
    const lit = entities.filter((one) => one.kind === "light" && one.state === "on");
    const climate = entities.find((one) => one.kind === "climate");
    const active = entities.filter((one) => ACTIVE.has(one.state));
    const brightest = Math.max(0, ...lit.map(brightness));
    const style = { "--glow": String(brightest / 100), ...(lit.length ? lampColor(lit[0]) : {}) };
    return h(
      "li",
      {
        key: area.id,
        class: "area",
        "data-testid": `area-${area.id}`,
        "data-lit": String(lit.length > 0),
        style,
      },
      h("h3", {}, area.name),
      h("ul", { class: "entities" }, ...entities.map((one) => this.#tile(one))),
      h(
        "p",
        { class: "area-foot" },
        h(
          "span",
          { class: "active", "aria-hidden": "true" },
          active.map((one) => summaryOf(one, area.name)).join(" · "),
        ),
        climate ? temperature(climate) : null,
      ),
    );
  }

  /** Returns the icon of one entity, with its state for screen readers. @param {Entity} entity */
  #tile(entity) {
    const text = `${entity.name}: ${stateInWords(entity)}`;
    const changes = this.changes.countOf(entity);
    const glow = { "--glow": String(brightness(entity) / 100), ...lampColor(entity) };
    return h(
      "li",
      {
        key: entity.id,
        class: `entity ${entity.kind}`,
        "data-testid": `entity-${entity.id}`,
        "data-state": entity.state,
        "data-active": String(ACTIVE.has(entity.state)),
        "data-changed": changes > 0 && ["again", "once"][changes % 2], // each change restarts the animation
        title: text,
        "data-warming": isWarming(entity) ? "true" : null,
        style: entity.kind === "light" ? glow : null,
      },
      this.#face(entity, text),
    );
  }

  /**
   * Returns the icon of a device, as a button if a click can switch it.
   *
   * @param {Entity} entity
   * @param {string} text
   */
  #face(entity, text) {
    const content = [icon(iconOf(entity)), h("span", { class: "sr-only" }, text)];
    if (!CLICKABLE.has(entity.kind)) return h("span", {}, ...content);
    const isOn = entity.state === "on";
    const click = () => this.buttons.switch(entity.id, isOn ? "off" : "on");
    return h("button", { type: "button", "aria-pressed": String(isOn), click }, ...content);
  }
}

/** Counts how often each entity changed since the page was opened. */
class Changes {
  constructor() {
    /**
     * The state of which an entity was drawn last, and how often it changed, by entity id.
     *
     * @type {Map<string, { drawnFrom: string, count: number }>}
     */
    this.seen = new Map();
  }

  /**
   * Counts the changes since the last call.
   *
   * @param {Entity[]} entities
   * @returns {Set<string>} ids of those that changed
   */
  take(entities) {
    const changed = new Set();
    const before = this.seen;
    this.seen = new Map();
    for (const { id, state, attributes } of entities) {
      const drawnFrom = JSON.stringify([state, attributes]);
      const old = before.get(id);
      const isChanged = old !== undefined && old.drawnFrom !== drawnFrom;
      if (isChanged) changed.add(id);
      this.seen.set(id, { drawnFrom, count: (old?.count ?? 0) + Number(isChanged) });
    }
    return changed;
  }

  /** Returns how often this entity changed. @param {Entity} entity */
  countOf({ id }) {
    return this.seen.get(id)?.count ?? 0;
  }
}

/**
 * Scrolls a list that scrolls sideways, as on a phone, so that the card is visible. Never scrolls the
 * whole page.
 *
 * @param {HTMLElement} list
 * @param {HTMLElement} card
 */
function intoView(list, card) {
  if (list.scrollWidth > list.clientWidth) {
    const left = card.offsetLeft - list.offsetLeft - SCROLL_MARGIN_PX;
    list.scrollTo({ left, behavior: "smooth" });
  }
}

/**
 * Returns the brightness in percent. A lamp that cannot be dimmed is at 100.
 *
 * @param {Entity} light
 */
const brightness = ({ attributes }) => Number(attributes.brightness ?? 100);

/**
 * Returns the colour of a coloured lamp, softened so that its icon stays readable.
 *
 * @param {Entity} light
 * @returns {Styles}
 */
function lampColor({ attributes: { color = "white" } }) {
  if (color === "white" || !CSS.supports("color", color)) return {};
  return { "--lamp": `color-mix(in oklab, ${color} 60%, white)` };
}

/** @param {Entity} entity */
const isWarming = ({ kind, state, attributes }) =>
  kind === "climate" &&
  state === "heat" &&
  Number(attributes.target_temperature) > Number(attributes.current_temperature);

/** @param {Entity} climate */
function temperature(climate) {
  const value = climate.attributes.current_temperature;
  return h("span", { class: "temperature" }, `${formatNumber(Number(value))}°`);
}

/** @param {Entity} entity */
function iconOf(entity) {
  if (entity.kind === "lock" && entity.state === "unlocked") return "unlocked";
  return hasIcon(entity.device_class) ? entity.device_class : entity.kind;
}

/**
 * Returns the entity's name and state. The room's name is left out, because the room's card names it.
 *
 * @param {Entity} entity
 * @param {string} room
 */
function summaryOf(entity, room) {
  const name = entity.name.startsWith(`${room} `)
    ? entity.name.slice(room.length + 1)
    : entity.name;
  return `${name} ${stateInWords(entity)}`;
}

/**
 * Returns the state with the value that belongs to it, such as "on, 40 %".
 *
 * @param {Pick<Entity, "kind" | "state" | "attributes">} entity
 */
export function stateInWords(entity) {
  const { kind, state, attributes } = entity;
  const words = t(`s_${state}`, {
    target: formatNumber(Number(attributes.target_temperature ?? 0)),
  });
  const shares = {
    light: attributes.brightness,
    fan: attributes.speed,
    media_player: attributes.volume,
  };
  const share = shares[/** @type {keyof typeof shares} */ (kind)];
  if (share !== undefined && ACTIVE.has(state) && Number(share) < 100)
    return `${words}, ${share} %`;
  if (kind === "cover" && state === "open" && Number(attributes.position) < 100) {
    return `${words}, ${attributes.position} %`;
  }
  return words;
}
