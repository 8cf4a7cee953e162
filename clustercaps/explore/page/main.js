/** Start the page. */

import { Engine } from "../engine/client.js";
import { announce, button, element, labelledSelect, showProblem } from "./dom.js";
import { DimensionsPanel } from "./panels/dimensions.js";
import { InputPanel } from "./panels/input.js";
import { NetworkPanel } from "./panels/network.js";
import { RoutingPanel } from "./panels/routing.js";
import { TransformPanel } from "./panels/transform.js";
import { WhyPanel } from "./panels/why.js";
import { Session } from "./session.js";
import { Store } from "./state.js";
import { themeSwitch } from "./theme.js";
import { Tour } from "./tour.js";

function networkPicker(session, store) {
  const options = store.networks.map(({ id, title }) => [id, title]);
  const { root, select } = labelledSelect("Network", options, (id) => session.setNetwork(id));
  const show = () => (select.value = store.state.network);
  store.listen((names) => names.has("network") && show());
  show();
  return root;
}

/** Copy the address of this view; where the clipboard is closed, say where it stands. */
async function copyLink(store) {
  store.writeHash();
  try {
    await navigator.clipboard.writeText(location.href);
    announce("The link to this view is on the clipboard.");
  } catch {
    announce("The address bar holds the link to this view.");
  }
}

function buildPanels(session) {
  const why = new WhyPanel(session);
  const explain = () => {
    why.explain();
    announce("Computing why; see the panel Why this weight.");
  };
  const panels = [
    new InputPanel(session), new NetworkPanel(session), new RoutingPanel(session, explain), why,
    new DimensionsPanel(session), new TransformPanel(session),
  ];
  document.getElementById("panels").replaceChildren(...panels.map((panel) => panel.root));
}

function buildTools(session, store, tour) {
  const repaint = () => {
    session.tell("pixels");
    if (session.result) ["result", "votes", "other"].forEach((what) => session[what] && session.tell(what));
  };
  const link = button("Copy link", () => {
    copyLink(store);
    link.textContent = "Copied";
    setTimeout(() => (link.textContent = "Copy link"), 1500);
  });
  document.getElementById("tools").append(
    networkPicker(session, store), themeSwitch(store, repaint), element("div", { class: "buttons" }, tour.starter, link));
}

async function startExplorer() {
  const { networks, version } = window.EXPLORER;
  if (!networks.length) throw new Error("This file holds no network; write it again with: clustercaps explore");
  const store = new Store(networks);
  const session = new Session(await Engine.start(), store);
  const tour = new Tour(store);
  buildTools(session, store, tour);
  buildPanels(session);
  document.body.append(tour.root);
  document.querySelector("[data-skip]").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("panel-input").focus();
  });
  document.getElementById("colophon").textContent =
    `Written by clustercaps ${version}. Everything is computed in this page; nothing is sent anywhere.`;
  await session.start();
  tour.show();
  document.body.dataset.ready = "true";
}

startExplorer().catch((error) => showProblem(`The explorer could not start: ${error.message}`));
