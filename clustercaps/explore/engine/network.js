// A network: image to logits, layer by layer, and back to an image if it has a decoder.

import { CapsuleLayer } from "./capsules.js";
import { Convolution } from "./convolution.js";
import { FullyConnectedDecoder, linear, UpsamplingDecoder } from "./decoders.js";
import { fromBase64, readSafetensors, take } from "./safetensors.js";
import { squaredError, transformMaps } from "./transforms.js";

const ROUTINGS = ["cluster", "uniform"];

export class Network {
  /** @param record one of EXPLORER.networks */
  constructor(record) {
    const tensors = readSafetensors(fromBase64(record.weights));
    this.kind = record.kind;
    this.input = record.input;
    this.shapes = record.layers;
    this.classes = record.classes.length;
    this.routing = record.config.routing ?? "cluster";
    const plain = this.kind === "affine_cnn";
    this.layers = this.shapes.map((shape, n) => (plain ? convolution : capsuleLayer)(tensors, shape, n));
    this.states = this.layers.map((layer) => newState(layer));
    const last = this.shapes.at(-1);
    // Networks with class capsules score each of them with the same linear unit.
    this.shared = this.kind === "class_capsules";
    const flat = this.shared ? last.dim : last.channels * last.dim * last.height * last.width;
    const outputs = this.shared ? 1 : this.classes;
    this.headWeight = take(tensors, "head.weight", [outputs, flat]);
    this.headBias = take(tensors, "head.bias", [outputs]);
    this.decoder = record.decoder ? this.newDecoder(tensors, record.decoder, last) : null;
    this.pixels = null;
  }

  newDecoder(tensors, image, last) {
    const { height, width, channels } = image;
    if (this.shared) {
      return new FullyConnectedDecoder(tensors, last.channels * last.dim, channels * height * width);
    }
    const maps = { channels: last.channels * last.dim, height: last.height, width: last.width };
    return new UpsamplingDecoder(tensors, maps, image);
  }

  /** Pixels [channels, height, width] in 0 to 1 to what the network was trained on. */
  prepare(pixels) {
    const { height, width, channels, mean, sd } = this.input;
    const size = height * width;
    if (pixels.length !== channels * size) {
      throw new Error(`expected ${channels} x ${height} x ${width} pixels, got ${pixels.length} numbers`);
    }
    // In 32 bits after every step, as torch does it.
    return Float32Array.from(pixels, (value, n) => {
      const channel = Math.floor(n / size);
      return Math.fround(value - Math.fround(mean[channel])) / Math.fround(sd[channel]);
    });
  }

  /** An image to logits; the results of all layers are kept. */
  forward(pixels, routing = this.routing) {
    if (!ROUTINGS.includes(routing)) throw new Error(`unknown routing ${routing}; known: ${ROUTINGS.join(", ")}`);
    this.image = this.prepare(pixels);
    this.pixels = Float32Array.from(pixels);
    this.used = routing;
    let values = this.image;
    this.layers.forEach((layer, n) => {
      values = runLayer(layer, values, routing, this.states[n]);
    });
    const logits = this.head(values);
    this.prediction = logits.indexOf(Math.max(...logits));
    return { logits, probabilities: softmax(logits), prediction: this.prediction };
  }

  head(features) {
    const logits = new Float64Array(this.classes);
    if (!this.shared) {
      linear(this.headWeight, this.headBias, features, logits);
      return Float32Array.from(logits);
    }
    const dim = this.shapes.at(-1).dim;
    return Float32Array.from(logits, (_, label) => {
      let sum = this.headBias[0];
      for (let n = 0; n < dim; n++) sum += this.headWeight[n] * features[label * dim + n];
      return sum;
    });
  }

  /** What the decoder reads: the capsules or feature maps of the last layer. */
  get features() {
    return this.states.at(-1).capsules;
  }

  /** The input of a layer in the last forward pass. */
  children(layer) {
    return layer === 0 ? this.image : this.states[layer - 1].capsules;
  }

  /** Votes, centroids, spreads and routing weights of one entry of one parent capsule. */
  inspect(place) {
    const layer = this.capsuleLayer(place);
    const found = layer.inspect(this.children(place.layer), this.used, place);
    const { height, width } = layer.shape;
    const at = ((place.channel * layer.shape.dim + place.dim) * height + place.y) * width + place.x;
    return { ...found, normalised: this.states[place.layer].capsules[at] };
  }

  /** The capsule layer of a place, which must be inside its feature maps. */
  capsuleLayer(place) {
    this.needForward();
    const layer = this.layers[place.layer];
    if (!(layer instanceof CapsuleLayer)) throw new Error(`this network has no capsule layer ${place.layer}`);
    const { height, width, channels, dim, clusters } = layer.shape;
    const limits = { y: height, x: width, channel: channels, dim, cluster: clusters };
    for (const [name, limit] of Object.entries(limits)) {
      const value = place[name] ?? 0;
      if (!Number.isInteger(value) || value < 0 || value >= limit) {
        throw new Error(`${name} must be 0 to ${limit - 1} in layer ${place.layer}, got ${value}`);
      }
    }
    return layer;
  }

  /** Features to an image; networks with class capsules decode the capsule of one class. */
  decode(features, label) {
    if (!this.decoder) throw new Error("this network has no decoder");
    const last = this.shapes.at(-1);
    const expected = last.channels * last.dim * last.height * last.width;
    if (features.length !== expected) throw new Error(`expected ${expected} features, got ${features.length}`);
    if (!this.shared) return this.decoder.run(features);
    const chosen = label ?? this.prediction;
    const kept = (n) => Math.floor(n / last.dim) === chosen;
    return this.decoder.run(features.map((value, n) => (kept(n) ? value : 0)));
  }

  /** The reconstruction from transformed channels, and the image transformed in the same way. */
  transform(change) {
    this.needForward();
    const { channels, dim, height, width } = this.shapes.at(-1);
    const { input } = this;
    const pixels = this.decode(transformMaps(this.features, channels * dim, height, width, change));
    // One step in the channels is several pixels of the image.
    const unit = this.shapes.reduce((product, { stride }) => product * stride, 1);
    const target = transformMaps(this.pixels, input.channels, input.height, input.width, change, unit);
    return { pixels, target, error: squaredError(pixels, target) };
  }

  needForward() {
    if (!this.pixels) throw new Error("there is no image yet; call forward first");
  }
}

function capsuleLayer(tensors, shape, number) {
  const { inDim, channels, dim, votes, clusters, kernel, height, width } = shape;
  const rows = clusters * votes * channels * dim;
  const name = `capsules.layers.${number}`;
  const own = (part, sizes) => take(tensors, `${name}.${part}`, sizes);
  const sizes = [dim, height, width];
  return new CapsuleLayer(
    shape,
    own("vote.weight", [rows, inDim, kernel, kernel]),
    own("vote.bias", [rows]),
    shape.norm ? { weight: own("norm.weight", sizes), bias: own("norm.bias", sizes) } : null,
  );
}

function convolution(tensors, shape, number) {
  const { inChannels, channels, kernel, height, width } = shape;
  const layer = new Convolution(
    take(tensors, `convs.${number}.weight`, [channels, inChannels, kernel, kernel]),
    take(tensors, `convs.${number}.bias`, [channels]),
    { ...shape, groups: 1, outChannels: channels },
  );
  if (layer.height !== height || layer.width !== width) throw new Error(`layer ${number} has another size`);
  return layer;
}

function newState(layer) {
  if (layer instanceof CapsuleLayer) return layer.newState();
  return { capsules: new Float32Array(layer.outChannels * layer.positions) };
}

function runLayer(layer, values, routing, state) {
  if (layer instanceof CapsuleLayer) return layer.run(values, routing, state);
  return layer.run(values, state.capsules, true);
}

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = Float64Array.from(logits, (logit) => Math.exp(logit - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return Float32Array.from(powers, (power) => power / total);
}
