/** Elements. Text from the data only ever becomes text nodes, never markup. */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svgElement(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

let controls = 0;

/** A label beside its control, not around it: options and values are no part of the name. */
function labelled(text, control) {
  controls += 1;
  control.id = `control-${controls}`;
  return element("label", { for: control.id }, text);
}

/** A select with a visible label. `options` are [value, text]. */
export function labelledSelect(text, options, onchange) {
  const select = element("select", { onchange: () => onchange(select.value) });
  setOptions(select, options);
  return { root: element("div", { class: "field" }, labelled(text, select), select), select };
}

export function setOptions(select, options) {
  const wanted = JSON.stringify(options);
  // Rebuilding a list closes it while it is open, so only when it changed.
  if (select.dataset.options === wanted) return;
  select.dataset.options = wanted;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

/** A slider with its label and its value. */
export function labelledSlider(text, { min, max, step, value, show, oninput }) {
  const shown = element("output", { class: "number" }, show(value));
  const slider = element("input", { type: "range", min, max, step, value });
  const set = (next) => {
    slider.value = String(next);
    shown.textContent = show(Number(next));
    slider.setAttribute("aria-valuetext", show(Number(next)));
  };
  slider.addEventListener("input", () => {
    set(Number(slider.value));
    oninput(Number(slider.value));
  });
  set(value);
  const root = element("div", { class: "slider" }, labelled(text, slider), slider, shown);
  return { root, slider, set };
}

/** A group of radio buttons. `choices` are [value, text]. */
export function radioGroup(name, legend, choices, onchange) {
  const inputs = choices.map(([value]) =>
    element("input", { type: "radio", name, value, onchange: () => onchange(value) }),
  );
  const labels = choices.map(([, text], n) => element("label", {}, inputs[n], element("span", {}, text)));
  const root = element("fieldset", { class: "switch" }, element("legend", {}, legend), ...labels);
  const set = (value) => {
    for (const input of inputs) input.checked = input.value === value;
  };
  return { root, set };
}

/** Say it to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export function showProblem(text) {
  const line = document.getElementById("problem");
  line.textContent = text;
  line.hidden = text === "";
}

export function calmMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
