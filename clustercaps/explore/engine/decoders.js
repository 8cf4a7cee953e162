// Decoders: from capsules to an image with values in 0 to 1 (layers/decoders.py).

import { Convolution } from "./convolution.js";
import { take } from "./safetensors.js";

const HIDDEN = [512, 1024];
const WIDTH = 32;

/** Three linear layers, two with ReLU and one with a sigmoid. */
export class FullyConnectedDecoder {
  constructor(tensors, features, pixels) {
    const sizes = [features, ...HIDDEN, pixels];
    this.layers = sizes.slice(1).map((outputs, n) => ({
      weight: take(tensors, `decoder.layers.${2 * n}.weight`, [outputs, sizes[n]]),
      bias: take(tensors, `decoder.layers.${2 * n}.bias`, [outputs]),
      out: new Float64Array(outputs),
    }));
  }

  run(features) {
    let values = Float64Array.from(features);
    this.layers.forEach(({ weight, bias, out }, n) => {
      linear(weight, bias, values, out);
      if (n < this.layers.length - 1) relu(out);
      values = out;
    });
    return sigmoid(values);
  }
}

/** Feature maps to the size of the image by nearest neighbour, then two 3x3 convolutions. */
export class UpsamplingDecoder {
  constructor(tensors, maps, image) {
    this.maps = maps;
    this.image = image;
    const shape = { kernel: 3, stride: 1, padding: 1, groups: 1, inHeight: image.height, inWidth: image.width };
    const layer = (number, inChannels, outChannels) =>
      new Convolution(
        take(tensors, `decoder.layers.${number}.weight`, [outChannels, inChannels, 3, 3]),
        take(tensors, `decoder.layers.${number}.bias`, [outChannels]),
        { ...shape, inChannels, outChannels },
      );
    this.first = layer(1, maps.channels, WIDTH);
    this.second = layer(3, WIDTH, image.channels);
    const size = image.height * image.width;
    this.enlarged = new Float32Array(maps.channels * size);
    this.hidden = new Float32Array(WIDTH * size);
    this.out = new Float32Array(image.channels * size);
  }

  run(features) {
    this.enlarge(features);
    this.first.run(this.enlarged, this.hidden, true);
    return sigmoid(this.second.run(this.hidden, this.out, false));
  }

  enlarge(features) {
    const { maps, image, enlarged } = this;
    let to = 0;
    for (let channel = 0; channel < maps.channels; channel++) {
      for (let y = 0; y < image.height; y++) {
        const row = (channel * maps.height + Math.floor((y * maps.height) / image.height)) * maps.width;
        for (let x = 0; x < image.width; x++) {
          enlarged[to++] = features[row + Math.floor((x * maps.width) / image.width)];
        }
      }
    }
  }
}

/** out = weight values + bias; four rows at a time, because loads of `values` are shared. */
export function linear(weight, bias, values, out) {
  const inputs = values.length;
  const whole = out.length - (out.length % 4);
  for (let row = 0; row < whole; row += 4) {
    let a = bias[row], b = bias[row + 1], c = bias[row + 2], d = bias[row + 3];
    const first = row * inputs, second = first + inputs, third = second + inputs, fourth = third + inputs;
    for (let n = 0; n < inputs; n++) {
      const value = values[n];
      a += weight[first + n] * value;
      b += weight[second + n] * value;
      c += weight[third + n] * value;
      d += weight[fourth + n] * value;
    }
    out[row] = a;
    out[row + 1] = b;
    out[row + 2] = c;
    out[row + 3] = d;
  }
  for (let row = whole; row < out.length; row++) {
    let sum = bias[row];
    for (let n = 0; n < inputs; n++) sum += weight[row * inputs + n] * values[n];
    out[row] = sum;
  }
}

function relu(values) {
  for (let n = 0; n < values.length; n++) if (values[n] < 0) values[n] = 0;
}

function sigmoid(values) {
  return Float32Array.from(values, (value) => 1 / (1 + Math.exp(-value)));
}
