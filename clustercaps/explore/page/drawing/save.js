/** Save a figure as PNG, and its numbers as CSV. */

import { svgElement } from "../dom.js";

const SCALE = 2;
const MARGIN = 24;
// What an SVG looks like outside this page, where no style sheet reaches it.
const LOOKS = [
  ...["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity"],
  ...["stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "font-style"],
];

export function saveText(name, text) {
  download(name, new Blob([text], { type: "text/csv" }));
}

function download(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  [link.href, link.download] = [address, name];
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Draw what a figure shows (text, canvases, charts; no controls) and save it. */
export async function savePicture(name, figure) {
  const focused = document.activeElement;
  figure.classList.add("saving");
  try {
    download(name, await pictureOf(figure));
  } finally {
    figure.classList.remove("saving");
    focused?.focus({ preventScroll: true });
  }
}

async function pictureOf(figure) {
  const box = figure.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  canvas.width = SCALE * (box.width + 2 * MARGIN);
  canvas.height = SCALE * (box.height + 2 * MARGIN);
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(SCALE, SCALE);
  context.translate(MARGIN - box.left, MARGIN - box.top);
  await drawNode(context, figure);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

async function drawNode(context, node) {
  if (node.nodeType === Node.TEXT_NODE) return drawText(context, node);
  if (node.nodeType !== Node.ELEMENT_NODE || node.dataset?.unsaved !== undefined) return;
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || !box.width || !box.height) return;
  if (style.clipPath !== "none" || ["SELECT", "INPUT"].includes(node.tagName)) return;
  if (node instanceof SVGElement) return drawSvg(context, node, box);
  drawBox(context, style, box);
  if (node.tagName === "CANVAS") context.drawImage(node, box.left, box.top, box.width, box.height);
  for (const child of node.childNodes) await drawNode(context, child);
}

function drawBox(context, style, { left, top, width, height }) {
  context.fillStyle = style.backgroundColor;
  context.fillRect(left, top, width, height);
  if (parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none") {
    context.fillStyle = style.borderTopColor;
    context.fillRect(left, top, width, parseFloat(style.borderTopWidth));
  }
}

/** Word by word, each where the browser has put it. */
function drawText(context, node) {
  const style = getComputedStyle(node.parentElement);
  context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = "middle";
  const range = document.createRange();
  for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (box.width) context.fillText(word, box.left, box.top + box.height / 2);
  }
}

async function drawSvg(context, svg, box) {
  const copy = svg.cloneNode(true);
  copyLooks(svg, copy);
  for (const [name, value] of Object.entries({ x: 0, y: 0, width: box.width, height: box.height })) {
    copy.setAttribute(name, value);
  }
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const text = new XMLSerializer().serializeToString(copy);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  context.drawImage(image, box.left, box.top, box.width, box.height);
}

function copyLooks(from, to) {
  const style = getComputedStyle(from);
  for (const name of LOOKS) {
    // The font family is in double quotes at times, which an attribute escapes.
    to.setAttribute(name, style.getPropertyValue(name));
  }
  if (style.display === "none") to.setAttribute("display", "none");
  [...from.children].forEach((child, n) => copyLooks(child, to.children[n]));
}

/** A small picture of a colour scale from `low` to `high`. */
export function colourBar(colour, low, high, width = 120, height = 8) {
  const steps = 24;
  const bars = Array.from({ length: steps }, (_, n) => {
    const [r, g, b] = colour(low + ((high - low) * n) / (steps - 1)).map(Math.round);
    const size = { x: (n * width) / steps, y: 0, width: width / steps + 0.5, height };
    return svgElement("rect", { ...size, fill: `rgb(${r},${g},${b})` });
  });
  return svgElement("svg", { width, height, class: "colour-bar", "aria-hidden": "true" }, ...bars);
}
