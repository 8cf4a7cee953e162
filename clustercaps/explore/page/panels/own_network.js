/** Panels for one kind of network: the chosen network if it fits, else the first that does. */

import { storedPixels } from "../warp.js";
import { Thumbnails } from "./thumbnails.js";

export function networkOfKind(store, kind) {
  if (store.network.kind === kind) return store.network;
  return store.networks.find((network) => network.kind === kind) ?? null;
}

function sameInput(some, other) {
  const shape = ({ input, classes }) => JSON.stringify([input.height, input.width, input.channels, classes]);
  return shape(some) === shape(other);
}

/** Whether the picture of panel 1 can be given to this network. */
export function sharesPicture(store, network) {
  return network.id === store.network.id || sameInput(network, store.network);
}

/** The picture of panel 1, or the stored image `index` where the networks see different images. */
export function pictureFor(session, network, index) {
  if (sharesPicture(session.store, network)) return session.pixels;
  return storedPixels(network, Math.min(index, network.images.length - 1));
}

/** A few images of the network to choose from: the first of every class. */
export function ownThumbnails(label, network, onchoose) {
  const firsts = network.classes.map((_, n) => network.images.findIndex(({ label: own }) => own === n));
  const thumbnails = new Thumbnails(label, 32, onchoose);
  thumbnails.fill(network, firsts.filter((n) => n >= 0));
  return thumbnails;
}
