// The home as the server streams it: rooms that light up, whether or not anyone talks.

import { isAway, pause, serverSent } from "../server/api.js";
import { byId, h, hasIcon, icon, setText } from "../view/keyed.js";
import { formatNumber, t } from "../words/translate.js";
import { showShopping, Timers } from "./household.js";

const AGAIN_MS = 250; // a proxy may have ended a stream that was live; how long a lost server stays unseen
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];
const REACHED = { here: "home_live", away: "home_away", refused: "home_refused" };
const ACTIVE = new Set(["on", "open", "playing", "unlocked"]); // worth naming; the rest is at rest

export class HomeView {
  /**
   * `onRefused(refused)` when the server wants a key; `onGone()` when it cannot be reached any more,
   * within a second if its port is closed; `onBack()` when it can again.
   */
  constructor({ onRefused, onGone, onBack }) {
    Object.assign(this, { onRefused, onGone, onBack });
    this.isGone = false;
    this.timers = new Timers(byId("timers"));
    this.home = null;
    this.seen = new Map(); // entity id -> what it was drawn from, to notice changes
  }

  /** Watch the home, named in `language`, until the next call of `watch`. */
  async watch(language) {
    this.watching?.abort();
    const watching = new AbortController();
    this.watching = watching;
    for (let attempt = 0; !watching.signal.aborted; attempt += 1) {
      let isAnswered = false;
      try {
        for await (const { event, data } of serverSent(
          `/earshot/home/events?language=${language}`,
          watching.signal,
        )) {
          if (event !== "home") continue;
          attempt = -1;
          this.show(JSON.parse(data));
        }
      } catch (error) {
        if (watching.signal.aborted) return;
        if (error.status === 401) return this.onRefused(error);
        isAnswered = !isAway(error);
      }
      if (watching.signal.aborted) return;
      this.#live(false);
      const wasLive = attempt < 0;
      if (!wasLive && !isAnswered) this.#lost();
      await pause(
        wasLive ? AGAIN_MS : RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)],
        watching.signal,
      );
    }
  }

  show(home) {
    this.home = home;
    this.#live(true, home.reach);
    const areas = home.areas.map((area) =>
      this.#area(
        area,
        home.entities.filter((one) => one.area === area.id),
      ),
    );
    keepInPlace(byId("areas"), areas);
    this.timers.show(home.timers);
    showShopping(byId("shopping"), home.shopping_list);
  }

  /** `reach`: whether the server itself reaches the house; else what is shown is old. */
  #live(isConnected, reach = "here") {
    const state = byId("home-state");
    if (isConnected && this.isGone) {
      this.isGone = false;
      this.onBack();
    }
    setText(state, t(isConnected ? REACHED[reach] : "home_lost"));
    state.dataset.live = isConnected && reach === "here";
    byId("areas").classList.toggle("old", isConnected && reach !== "here");
  }

  #lost() {
    if (this.isGone) return;
    this.isGone = true;
    this.onGone();
  }

  #area(area, entities) {
    const lit = entities.filter((one) => one.kind === "light" && one.state === "on");
    const climate = entities.find((one) => one.kind === "climate");
    const active = entities.filter((one) => ACTIVE.has(one.state));
    const card = h(
      "li",
      { class: "area", "data-testid": `area-${area.id}`, "data-lit": String(lit.length > 0) },
      h("h3", {}, area.name),
      h("ul", { class: "entities" }, ...entities.map((one) => this.#entity(one))),
      h(
        "p",
        { class: "area-foot" },
        h(
          "span",
          { class: "active", "aria-hidden": "true" },
          active.map((one) => summary(one, area.name)).join(" · "),
        ),
        climate ? temperature(climate) : null,
      ),
    );
    const brightest = Math.max(0, ...lit.map((one) => Number(one.attributes.brightness ?? 100)));
    card.style.setProperty("--glow", String(brightest / 100));
    if (lit.length) paint(card, lit[0]);
    return card;
  }

  #entity(entity) {
    const drawnFrom = JSON.stringify([entity.state, entity.attributes]);
    const isChanged = this.seen.has(entity.id) && this.seen.get(entity.id) !== drawnFrom;
    this.seen.set(entity.id, drawnFrom);
    const text = `${entity.name}: ${inWords(entity)}`;
    const tile = h(
      "li",
      {
        class: `entity ${entity.kind}`,
        "data-testid": `entity-${entity.id}`,
        "data-state": entity.state,
        "data-active": String(ACTIVE.has(entity.state)),
        "data-changed": isChanged,
        title: text,
        "data-warming": isWarming(entity) ? "true" : null,
      },
      icon(iconOf(entity)),
      h("span", { class: "sr-only" }, text),
    );
    if (entity.kind === "light") {
      tile.style.setProperty("--glow", String(Number(entity.attributes.brightness ?? 100) / 100));
      paint(tile, entity);
    }
    return tile;
  }
}

/** Replace only cards that look different, so that the rest neither flickers nor loses focus. */
function keepInPlace(list, cards) {
  const old = [...list.children];
  if (old.length !== cards.length) return list.replaceChildren(...cards);
  cards.forEach((card, index) => {
    if (looksLike(old[index], card)) return;
    old[index].replaceWith(card);
    if (card.querySelector("[data-changed]")) intoView(list, card);
  });
}

const looksLike = (a, b) =>
  a.outerHTML.replaceAll(' data-changed=""', "") === b.outerHTML.replaceAll(' data-changed=""', "");

// Only inside a list that scrolls sideways, as it does on a phone; never the whole page.
function intoView(list, card) {
  if (list.scrollWidth > list.clientWidth) {
    list.scrollTo({ left: card.offsetLeft - list.offsetLeft - 16, behavior: "smooth" });
  }
}

/** Give a coloured lamp its colour, softened so that its icon stays readable. */
function paint(element, { attributes: { color = "white" } }) {
  if (color === "white" || !CSS.supports("color", color)) return;
  element.style.setProperty("--lamp", `color-mix(in oklab, ${color} 60%, white)`);
}

const isWarming = ({ kind, state, attributes }) =>
  kind === "climate" &&
  state === "heat" &&
  Number(attributes.target_temperature) > Number(attributes.current_temperature);

function temperature(climate) {
  const value = climate.attributes.current_temperature;
  return h("span", { class: "temperature" }, `${formatNumber(Number(value))}°`);
}

function iconOf(entity) {
  if (entity.kind === "lock" && entity.state === "unlocked") return "unlocked";
  return hasIcon(entity.device_class) ? entity.device_class : entity.kind;
}

/** Without the room's name, under which it stands anyway. */
function summary(entity, room) {
  const name = entity.name.startsWith(`${room} `)
    ? entity.name.slice(room.length + 1)
    : entity.name;
  return `${name} ${inWords(entity)}`;
}

function inWords(entity) {
  const { kind, state, attributes } = entity;
  const words = t(`s_${state}`, {
    target: formatNumber(Number(attributes.target_temperature ?? 0)),
  });
  const share = {
    light: attributes.brightness,
    fan: attributes.speed,
    media_player: attributes.volume,
  }[kind];
  if (share !== undefined && ACTIVE.has(state) && Number(share) < 100) {
    return `${words}, ${share} %`;
  }
  if (kind === "cover" && state === "open" && Number(attributes.position) < 100) {
    return `${words}, ${attributes.position} %`;
  }
  return words;
}
