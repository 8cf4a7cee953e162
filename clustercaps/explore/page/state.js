/** What the reader has chosen. The address after # holds everything that differs from the start. */

export const ADJUSTMENTS = ["rotate", "right", "down", "noise"];
export const SELECTION = ["layer", "row", "column", "parent", "dim", "cluster"];
const ROUTINGS_SHOWN = ["cluster", "uniform"];
const THEMES = ["auto", "light", "dark"];
export const TRANSFORMS = ["rotate", "flip-horizontal", "flip-vertical", "shift", "scale"];

// Counted from 1 in the address, from 0 here.
const ORDINALS = ["image", "layer", "row", "column", "parent", "dim", "cluster", "picture", "sample"];
const LIMITS = {
  ...{ rotate: [-180, 180], right: [-16, 16], down: [-16, 16], noise: [0, 0.5] },
  ...{ amount: [-360, 360], step: [0, 7] },
};
const WORDS = { routing: ROUTINGS_SHOWN, theme: THEMES, transform: TRANSFORMS };

/** The state at the start, for the first network. */
export function startState(networks) {
  const first = networks[0];
  return {
    network: first ? first.id : "",
    image: 0,
    pixels: "",
    ...{ rotate: 0, right: 0, down: 0, noise: 0 },
    routing: "cluster",
    ...startSelection(first),
    show: "length",
    ...{ picture: 0, offsets: "", sample: 0, transform: "rotate", amount: 45 },
    theme: "auto",
    step: 0,
  };
}

/** A capsule in the middle of a middle layer. */
export function startSelection(network) {
  const layers = network ? network.layers : [];
  const layer = Math.max(0, Math.min(2, layers.length - 1));
  const size = layers[layer] ?? { height: 1, width: 1 };
  const [row, column] = [size.height >> 1, size.width >> 1];
  return { layer, row, column, parent: 0, dim: 0, cluster: 0 };
}

/** The state with every value moved to the nearest that the networks have. */
export function fitState(state, networks) {
  const network = networks.find((each) => each.id === state.network) ?? networks[0];
  if (!network) return state;
  const within = (value, count) => Math.max(0, Math.min(count - 1, Math.trunc(value) || 0));
  const fitted = { ...state, network: network.id };
  fitted.image = within(state.image, Math.max(1, network.images.length));
  if (network.layers.length) {
    fitted.layer = within(state.layer, network.layers.length);
    const layer = network.layers[fitted.layer];
    fitted.row = within(state.row, layer.height);
    fitted.column = within(state.column, layer.width);
    fitted.parent = within(state.parent, layer.channels);
    fitted.dim = within(state.dim, layer.dim);
    fitted.cluster = within(state.cluster, layer.clusters);
  }
  const deepest = Math.max(1, ...network.layers.map((layer) => layer.dim));
  const shown = /^\d+$/.test(state.show) ? Number(state.show) : 0;
  fitted.show = shown >= 1 && shown <= deepest ? String(shown) : "length";
  return fitted;
}

/** The address after #, without what is as at the start. */
export function writeAddress(state, networks) {
  const network = networks.find((each) => each.id === state.network);
  const start = { ...startState(networks), ...startSelection(network) };
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value === start[name]) continue;
    words.set(name, ORDINALS.includes(name) ? value + 1 : value);
  }
  return words.toString();
}

/** The state in an address. What cannot be read stays as at the start. */
export function readAddress(address, networks) {
  const words = new URLSearchParams(address.replace(/^#/, ""));
  const named = networks.find((each) => each.id === words.get("network"));
  const state = { ...startState(networks), ...startSelection(named ?? networks[0]) };
  for (const [name, text] of words) {
    if (!Object.hasOwn(state, name)) continue;
    const value = readValue(name, text);
    if (value !== null) state[name] = value;
  }
  return fitState(state, networks);
}

function readValue(name, text) {
  if (ORDINALS.includes(name)) return /^\d{1,6}$/.test(text) ? Number(text) - 1 : null;
  if (name in LIMITS) {
    const [least, most] = LIMITS[name];
    const value = Number(text);
    return Number.isFinite(value) ? Math.max(least, Math.min(most, value)) : null;
  }
  if (name in WORDS) return WORDS[name].includes(text) ? text : null;
  if (name === "offsets") return /^(-?\d+(\.\d+)?)?(,-?\d+(\.\d+)?)*$/.test(text) ? text : null;
  if (name === "pixels") return /^[A-Za-z0-9_-]{0,20000}$/.test(text) ? text : null;
  return text;
}

export class Store {
  constructor(networks) {
    this.networks = networks;
    this.listeners = [];
    this.state = readAddress(location.hash, networks);
    this.timer = 0;
    addEventListener("hashchange", () => this.readHash());
  }

  get network() {
    return this.networks.find((each) => each.id === this.state.network);
  }

  get layer() {
    return this.network.layers[this.state.layer];
  }

  /** Call `listener(names)` with the set of names that changed. */
  listen(listener) {
    this.listeners.push(listener);
  }

  set(changes) {
    const next = fitState({ ...this.state, ...changes }, this.networks);
    const names = new Set(Object.keys(next).filter((name) => next[name] !== this.state[name]));
    if (!names.size) return;
    this.state = next;
    // Browsers limit how often a page may write its address.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeHash(), 300);
    for (const listener of this.listeners) listener(names);
  }

  writeHash() {
    clearTimeout(this.timer);
    const address = writeAddress(this.state, this.networks);
    if (address === location.hash.replace(/^#/, "")) return;
    history.replaceState(null, "", `#${address}`);
  }

  readHash() {
    // An anchor of the page itself, such as #panel-input, is not a state.
    if (location.hash.startsWith("#panel-")) return;
    this.set(readAddress(location.hash, this.networks));
  }
}
