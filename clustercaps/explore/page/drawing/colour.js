/** Colours of maps and pictures on a canvas, from the theme of the page. */

/** A colour of the theme, such as "--map-high", as [r, g, b]. */
export function themeColour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function mix(from, to, part) {
  return from.map((value, n) => value + (to[n] - value) * part);
}

/** Capsule lengths: from the ground to one dark (or light) end, in even steps of lightness. */
export function lengthColours() {
  const [low, middle, high] = ["--map-low", "--map-middle", "--map-high"].map(themeColour);
  return (part) => (part < 0.5 ? mix(low, middle, 2 * part) : mix(middle, high, 2 * part - 1));
}

/** Signed values in -1..1: two hues that colour-blind readers tell apart, the ground between them. */
export function signedColours() {
  const [minus, zero, plus] = ["--map-minus", "--map-low", "--map-plus"].map(themeColour);
  return (value) => (value < 0 ? mix(zero, minus, Math.min(1, -value)) : mix(zero, plus, Math.min(1, value)));
}

/** Paint values [H, W] with one colour each, enlarged without smoothing. */
export function paintMap(canvas, values, height, width, colour) {
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, height];
  const context = small.getContext("2d");
  const image = context.createImageData(width, height);
  for (let n = 0; n < height * width; n++) {
    image.data.set([...colour(values[n]), 255], 4 * n);
  }
  context.putImageData(image, 0, 0);
  enlarge(canvas, small);
}

/** Paint a picture [C, H, W] in 0..1. */
export function paintPicture(canvas, pixels, { height, width, channels }) {
  const place = height * width;
  const indices = Float32Array.from({ length: place }, (_, n) => n);
  const shade = (value) => Math.round(255 * Math.max(0, Math.min(1, value)));
  paintMap(canvas, indices, height, width, (n) => {
    if (channels >= 3) return [0, 1, 2].map((c) => shade(pixels[c * place + n]));
    const grey = shade(pixels[n]);
    return [grey, grey, grey];
  });
}

function enlarge(canvas, small) {
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

/** Set the drawing size of a canvas to its place on the page, sharp on every screen. */
export function sizeCanvas(canvas, width, height = width) {
  const ratio = Math.max(2, window.devicePixelRatio || 1);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}
