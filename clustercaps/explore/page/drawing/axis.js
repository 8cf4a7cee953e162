/** Scales and axes of the charts. */

import { svgElement } from "../dom.js";
import { fixed } from "../format.js";

/** A linear scale with round ticks. */
export function linearScale([low, high], [start, end], wanted = 5) {
  const span = high - low || 1;
  const at = (value) => start + ((value - low) / span) * (end - start);
  const step = roundStep(span / wanted);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * span; n++) ticks.push(n * step);
  return { at, ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), low, high };
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
}

/** A horizontal axis with ticks, numbers and a label below. */
export function bottomAxis(scale, y, label, gridTop = null) {
  const group = svgElement("g", { class: "axis" });
  const [left, right] = [scale.at(scale.low), scale.at(scale.high)];
  for (const tick of scale.ticks) {
    const x = scale.at(tick);
    if (gridTop !== null) group.append(svgElement("line", { class: "grid", x1: x, x2: x, y1: gridTop, y2: y }));
    group.append(svgElement("text", { x, y: y + 16, "text-anchor": "middle" }, fixed(tick, scale.digits)));
  }
  group.append(svgElement("line", { class: "rule", x1: left, x2: right, y1: y, y2: y }));
  const middle = (left + right) / 2;
  group.append(svgElement("text", { class: "axis-label", x: middle, y: y + 34, "text-anchor": "middle" }, label));
  return group;
}
