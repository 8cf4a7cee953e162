// The worker: answers the messages of client.js, one at a time.
//
// A message is { id, method, network, options }; an answer { id, result } or { id, error }, and
// { id, progress } on the way.

import { Network } from "./network.js";
import { Sensitivity } from "./sensitivity.js";

// Time between two progress reports, after which waiting messages are answered.
const SLICE_MS = 40;

const networks = new Map();
const records = new Map();
const copies = new Map();
// Number of the newest sensitivity call; an older one stops.
let newest = 0;

function find(id) {
  if (!networks.has(id)) throw new Error(`the network ${id} is not loaded`);
  return networks.get(id);
}

/** A second copy of a network, for passes that later calls do not refer to. */
function aside(id) {
  find(id);
  if (!copies.has(id)) copies.set(id, new Network(records.get(id)));
  return copies.get(id);
}

const methods = {
  load(id, { record }) {
    if (!networks.has(id)) {
      networks.set(id, new Network(record));
      records.set(id, record);
    }
    return true;
  },

  forward(id, { pixels, routing, keep }) {
    const network = keep === false ? aside(id) : find(id);
    const start = performance.now();
    const found = network.forward(pixels, routing);
    const ms = performance.now() - start;
    const layers = network.states.map((state) => ({ capsules: state.capsules.slice() }));
    return { ...found, layers, features: network.features.slice(), ms };
  },

  votes(id, place) {
    return find(id).inspect(place);
  },

  weights(id, { layer }) {
    const network = find(id);
    network.capsuleLayer({ layer });
    return network.states[layer].weights.slice();
  },

  decode(id, { features, label }) {
    const start = performance.now();
    const pixels = find(id).decode(features, label);
    return { pixels, ms: performance.now() - start };
  },

  transform(id, change) {
    return find(id).transform(change);
  },

  cancel() {
    newest++;
    return true;
  },

  async sensitivity(id, place, report) {
    const call = ++newest;
    const work = new Sensitivity(find(id), place);
    for (let since = performance.now(); work.next(); ) {
      if (performance.now() - since < SLICE_MS) continue;
      report({ fraction: work.fraction, change: work.change.slice() });
      await new Promise((resolve) => setTimeout(resolve));
      if (call !== newest) throw Object.assign(new Error("replaced by a newer call"), { name: "Superseded" });
      since = performance.now();
    }
    return work.change;
  },
};

self.onmessage = async ({ data: { id, method, network, options } }) => {
  try {
    const result = await methods[method](network, options, (progress) => self.postMessage({ id, progress }));
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: { name: error.name, message: error.message } });
  }
};
