// Transformations of images and feature maps: relative to the centre, zero padding, linear
// interpolation (experiments/harness/transformations.py).

const ROTATIONS = [0, 45, 90, 135, 180, 225, 270, 315];
const SHIFTS = [1, 2, 4];
const SCALES = [0.5, 0.75, 1.2, 1.5, 2];

/** The paper's 18 transformations, in its order. */
export const PRESETS = [
  ...ROTATIONS.map((amount) => ({ name: `R-${amount}`, kind: "rotate", amount })),
  { name: "H-flip", kind: "flip-horizontal", amount: 0 },
  { name: "V-flip", kind: "flip-vertical", amount: 0 },
  ...SHIFTS.map((amount) => ({ name: `Shift-${amount}`, kind: "shift", amount })),
  ...SCALES.map((amount) => ({ name: `Scale-${amount}`, kind: "scale", amount })),
];

/** Where a position of the result comes from, in units of half a side: [[a, b, c], [d, e, f]]. */
function inverse({ kind, amount = 0, right = amount, down = amount }, height, width, unit) {
  if (kind === "none") return [1, 0, 0, 0, 1, 0];
  if (kind === "flip-horizontal") return [-1, 0, 0, 0, 1, 0];
  if (kind === "flip-vertical") return [1, 0, 0, 0, -1, 0];
  if (kind === "shift") return [1, 0, (-2 * right * unit) / width, 0, 1, (-2 * down * unit) / height];
  if (kind === "scale") {
    if (!(amount > 0)) throw new Error(`a scale must be positive, got ${amount}`);
    return [1 / amount, 0, 0, 0, 1 / amount, 0];
  }
  if (kind === "rotate") {
    const cos = Math.cos((amount * Math.PI) / 180);
    const sin = Math.sin((amount * Math.PI) / 180);
    // Rows count downwards; the factors avoid shear if height and width differ.
    return [cos, (-sin * height) / width, 0, (sin * width) / height, cos, 0];
  }
  throw new Error(`unknown transformation ${kind}; known: rotate, scale, shift, flip-horizontal, flip-vertical, none`);
}

/**
 * Transform maps [channels, height, width].
 * @param unit positions per unit of shift: 1 for the channels, their stride for the image
 */
export function transformMaps(maps, channels, height, width, change, unit = 1) {
  const [a, b, c, d, e, f] = inverse(change, height, width, unit);
  const out = new Float32Array(maps.length);
  const size = height * width;
  for (let y = 0; y < height; y++) {
    const v = (2 * y + 1) / height - 1;
    for (let x = 0; x < width; x++) {
      const u = (2 * x + 1) / width - 1;
      const fromX = ((a * u + b * v + c + 1) * width - 1) / 2;
      const fromY = ((d * u + e * v + f + 1) * height - 1) / 2;
      const left = Math.floor(fromX), top = Math.floor(fromY);
      for (let corner = 0; corner < 4; corner++) {
        const column = left + (corner & 1), row = top + (corner >> 1);
        const share = (1 - Math.abs(fromX - column)) * (1 - Math.abs(fromY - row));
        if (share <= 0 || column < 0 || row < 0 || column >= width || row >= height) continue;
        const from = row * width + column, to = y * width + x;
        for (let map = 0; map < channels; map++) out[map * size + to] += share * maps[map * size + from];
      }
    }
  }
  return out;
}

/** Mean squared difference. */
export function squaredError(some, others) {
  let sum = 0;
  for (let n = 0; n < some.length; n++) sum += (some[n] - others[n]) ** 2;
  return sum / some.length;
}
