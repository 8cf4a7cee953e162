/** Arrow keys over the maps: across the edge of a map lies the next channel or layer. */

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The place after a key, or null if the key means nothing here. */
export function walk(key, { layer, parent, row, column }, layers) {
  if (!(key in STEPS)) return null;
  const [down, right] = STEPS[key];
  const own = layers[layer];
  const [nextRow, nextColumn] = [row + down, column + right];
  const inside = nextRow >= 0 && nextRow < own.height && nextColumn >= 0 && nextColumn < own.width;
  if (inside) return { layer, parent, row: nextRow, column: nextColumn };
  if (down) {
    const channel = parent + down;
    if (channel < 0 || channel >= own.channels) return { layer, parent, row, column };
    return { layer, parent: channel, row: down > 0 ? 0 : own.height - 1, column };
  }
  const other = layers[layer + right];
  if (!other) return { layer, parent, row, column };
  const scaled = Math.min(other.height - 1, Math.floor(((row + 0.5) * other.height) / own.height));
  const channel = Math.min(parent, other.channels - 1);
  return { layer: layer + right, parent: channel, row: scaled, column: right > 0 ? 0 : other.width - 1 };
}
