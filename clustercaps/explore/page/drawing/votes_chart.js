/** The votes of every cluster on a number line, their weights as bars, and the sum as it is formed. */

import { svgElement } from "../dom.js";
import { fixed, signed, significant } from "../format.js";
import { bottomAxis, linearScale } from "./axis.js";

const TOP = 28;
const COLOURS = 8;

/** Sizes of the chart for a width and a number of clusters. */
function chartSizes(width, clusters) {
  const narrow = width < 460;
  const row = clusters <= 4 ? 48 : clusters <= 8 ? 34 : 24;
  const step = clusters <= 4 ? 18 : clusters <= 8 ? 14 : 10;
  const left = narrow ? 56 : 72;
  const bars = narrow ? 92 : 156;
  const end = width - bars - (narrow ? 14 : 28);
  const sumTop = TOP + clusters * row + 30;
  const bottom = sumTop + clusters * step + 10;
  return { narrow, row, step, left, end, bars, barsLeft: width - bars, sumTop, bottom, height: bottom + 44, width };
}

/**
 * @param data {votes [I*K], centroids, spreads, weights, k, capsule}
 * @param options {width, names, averages: [classes][I] or null, predicted, chosen, label, shown, onchoose}
 */
export function votesChart(data, options) {
  const clusters = data.weights.length;
  const sizes = chartSizes(options.width, clusters);
  const scale = linearScale(extent(data), [sizes.left, sizes.end], sizes.narrow ? 3 : 6);
  const root = svgElement("svg", {
    viewBox: `0 0 ${sizes.width} ${sizes.height}`, width: sizes.width, height: sizes.height,
    role: "group", "aria-label": "Votes, centroids, spreads and routing weights of every cluster", class: "votes-chart",
  });
  const head = (x, text, anchor = "start") => svgElement("text", { class: "chart-head", x, y: 12, "text-anchor": anchor }, text);
  root.append(head(sizes.left, `${data.k} votes of each cluster`), head(sizes.barsLeft, sizes.narrow ? "weight" : "routing weight"));
  root.append(bottomAxis(scale, sizes.bottom, options.label, TOP));
  root.append(parentLine(data, scale, sizes));
  const bars = linearScale([0, barsEnd(data, options)], [sizes.barsLeft, sizes.width - 40], 2);
  for (let i = 0; i < clusters; i++) root.append(clusterRow(i, data, options, sizes, scale, bars));
  root.append(...sumSteps(data, options, sizes, scale));
  return root;
}

function extent({ votes, centroids, spreads, capsule }) {
  const values = [0, capsule, ...votes];
  centroids.forEach((m, i) => values.push(m - spreads[i], m + spreads[i]));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = 0.04 * (high - low || 1);
  return [low - margin, high + margin];
}

function barsEnd({ weights }, { averages }) {
  const most = Math.max(...weights, ...(averages ?? []).flat());
  return [0.1, 0.2, 0.3, 0.5, 0.75].find((end) => end >= 1.05 * most) ?? 1;
}

/** The parent, through all rows. */
function parentLine(data, scale, { sumTop, bottom, narrow }) {
  const x = scale.at(data.capsule);
  const text = narrow ? `s ${fixed(data.capsule)}` : `parent s = ${significant(data.capsule)}`;
  const nearRight = x > scale.at(scale.low + 0.7 * (scale.high - scale.low));
  return svgElement("g", { class: "parent-line" },
    svgElement("line", { x1: x, x2: x, y1: TOP - 6, y2: bottom }),
    svgElement("text", { x: x + (nearRight ? -6 : 6), y: sumTop - 10, "text-anchor": nearRight ? "end" : "start" }, text));
}

function clusterRow(i, data, options, sizes, scale, bars) {
  const y = TOP + i * sizes.row;
  const middle = y + sizes.row / 2;
  const colour = `cluster-${i % COLOURS}`;
  const [m, spread, weight] = [data.centroids[i], data.spreads[i], data.weights[i]];
  const chosen = options.chosen === i;
  const label = `${options.names[i]}: centroid ${significant(m)}, spread ${significant(spread)}, routing weight ${fixed(weight, 3)}. Explain this weight`;
  const choose = () => options.onchoose(i);
  // The ground of the row is the button; what is drawn on it is in its label.
  const ground = svgElement("rect", {
    class: "row-ground", x: 1, y: y + 2, width: sizes.width - 2, height: sizes.row - 4, rx: 4,
    role: "button", tabindex: "0", "data-cluster": i, "aria-label": label, "aria-pressed": String(chosen),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    },
  });
  const group = svgElement("g", { "aria-hidden": "true" });
  const row = svgElement("g", { class: `cluster ${colour}${chosen ? " chosen" : ""}`, onclick: choose }, ground, group);
  group.append(svgElement("text", { class: "row-name", x: 8, y: middle + 4 }, options.names[i]));
  group.append(svgElement("line", { class: "row-line", x1: sizes.left, x2: sizes.end, y1: middle, y2: middle }));
  const half = Math.min(13, sizes.row / 2 - 5);
  const [from, to] = [scale.at(m - spread), scale.at(m + spread)];
  group.append(svgElement("rect", { class: "spread", x: from, y: middle - half, width: Math.max(1, to - from), height: 2 * half, rx: 3 }));
  group.append(svgElement("line", { class: "centroid", x1: scale.at(m), x2: scale.at(m), y1: middle - half, y2: middle + half }));
  for (let k = 0; k < data.k; k++) {
    const vote = data.votes[i * data.k + k];
    group.append(svgElement("circle", { class: "vote", cx: scale.at(vote), cy: middle, r: sizes.row > 30 ? 4.5 : 3.5 },
      svgElement("title", {}, `vote ${k + 1}: ${significant(vote)}`)));
  }
  group.append(...weightBar(weight, i, options, bars, middle, half));
  return row;
}

/** The bar, with one tick per class for the mean weight of its images. */
function weightBar(weight, i, { averages, predicted }, bars, middle, half) {
  const thick = Math.min(16, 2 * half);
  const parts = [
    svgElement("rect", { class: "weight-ground", x: bars.at(0), y: middle - thick / 2, width: bars.at(bars.high) - bars.at(0), height: thick }),
    svgElement("rect", { class: "weight", x: bars.at(0), y: middle - thick / 2, width: Math.max(1, bars.at(weight) - bars.at(0)), height: thick }),
  ];
  (averages ?? []).forEach((ofClass, n) => {
    const x = bars.at(ofClass[i]);
    const grow = n === predicted ? 5 : 0;
    const kind = n === predicted ? "average predicted" : "average";
    parts.push(svgElement("line", { class: kind, x1: x, x2: x, y1: middle - thick / 2 - grow, y2: middle + thick / 2 + grow }));
  });
  parts.push(svgElement("text", { class: "weight-value", x: bars.at(bars.high) + 6, y: middle + 4 }, fixed(weight)));
  return parts;
}

/** One step per cluster, from the sum so far to the sum with its part. */
function sumSteps(data, { shown }, sizes, scale) {
  const parts = [
    svgElement("text", { class: "row-name", x: 8, y: sizes.sumTop + 8 }, "sum"),
    svgElement("line", { class: "zero", x1: scale.at(0), x2: scale.at(0), y1: sizes.sumTop - 6, y2: sizes.bottom }),
  ];
  let sum = 0;
  for (let i = 0; i < Math.min(shown, data.weights.length); i++) {
    const next = sum + data.weights[i] * data.centroids[i];
    const y = sizes.sumTop + i * sizes.step;
    const [from, to] = [scale.at(sum), scale.at(next)];
    const thick = Math.min(10, sizes.step - 3);
    parts.push(svgElement("g", { class: `cluster-${i % COLOURS}` },
      svgElement("rect", { class: "sum-part", x: Math.min(from, to), y, width: Math.max(1.5, Math.abs(to - from)), height: thick }),
      svgElement("line", { class: "sum-link", x1: to, x2: to, y1: y, y2: i + 1 < data.weights.length ? y + sizes.step + thick / 2 : y })));
    if (sizes.step >= 14 && !sizes.narrow) {
      const text = `${fixed(data.weights[i])} \u00d7 ${fixed(data.centroids[i])} = ${signed(next - sum)}`;
      parts.push(svgElement("text", { class: "sum-text", x: sizes.barsLeft, y: y + thick - 1 }, text));
    }
    sum = next;
  }
  return parts;
}
