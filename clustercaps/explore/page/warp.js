/** The picture in the hands of the reader: turned, shifted, noisy. Pixels are [C, H, W] in 0..1. */

import { bytesOf } from "./base64.js";

/** Pixels of a stored image, [H, W, C] bytes. */
export function storedPixels(network, index) {
  const { height, width, channels } = network.input;
  const image = network.images[index];
  const pixels = new Float32Array(channels * height * width);
  if (!image) return pixels;
  const bytes = bytesOf(image.pixels);
  for (let place = 0; place < height * width; place++) {
    for (let c = 0; c < channels; c++) {
      pixels[c * height * width + place] = bytes[place * channels + c] / 255;
    }
  }
  return pixels;
}

/** Rotate counter-clockwise about the centre, shift, and add noise; pads with black. */
export function warped(pixels, { height, width, channels }, { rotate, right, down, noise }) {
  const out = rotate || right || down ? new Float32Array(pixels.length) : Float32Array.from(pixels);
  if (rotate || right || down) {
    const angle = (rotate * Math.PI) / 180;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const [dx, dy] = [x - right - (width - 1) / 2, y - down - (height - 1) / 2];
        const sourceX = cos * dx - sin * dy + (width - 1) / 2;
        const sourceY = sin * dx + cos * dy + (height - 1) / 2;
        for (let c = 0; c < channels; c++) {
          const start = c * height * width;
          out[start + y * width + x] = between(pixels, start, height, width, sourceY, sourceX);
        }
      }
    }
  }
  if (noise) addNoise(out, noise);
  return out;
}

/** Linear interpolation, black outside. */
function between(pixels, start, height, width, y, x) {
  const [top, left] = [Math.floor(y), Math.floor(x)];
  let sum = 0;
  for (const [row, weightY] of [[top, 1 - (y - top)], [top + 1, y - top]]) {
    for (const [column, weightX] of [[left, 1 - (x - left)], [left + 1, x - left]]) {
      if (row < 0 || column < 0 || row >= height || column >= width) continue;
      sum += weightY * weightX * pixels[start + row * width + column];
    }
  }
  return sum;
}

/** The same noise for every picture, so that sliders do not flicker. */
function addNoise(pixels, strength) {
  const draw = randomNumbers(1);
  for (let n = 0; n < pixels.length; n++) {
    // The sum of three uniform numbers is close to normal; its standard deviation is 1/2.
    const normal = 2 * (draw() + draw() + draw() - 1.5);
    pixels[n] = Math.max(0, Math.min(1, pixels[n] + strength * normal));
  }
}

/** Numbers in 0..1 from a seed (mulberry32). */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Add or remove a soft dab of ink at (y, x), in all colours. */
export function dab(pixels, { height, width, channels }, y, x, ink) {
  const radius = 1.3 * (width / 28);
  for (let row = Math.max(0, Math.floor(y - 3)); row < Math.min(height, y + 4); row++) {
    for (let column = Math.max(0, Math.floor(x - 3)); column < Math.min(width, x + 4); column++) {
      const distance = Math.hypot(row + 0.5 - y, column + 0.5 - x);
      const cover = Math.max(0, Math.min(1, radius + 0.5 - distance));
      for (let c = 0; c < channels; c++) {
        const place = (c * height + row) * width + column;
        pixels[place] = ink ? Math.max(pixels[place], cover) : Math.min(pixels[place], 1 - cover);
      }
    }
  }
}
