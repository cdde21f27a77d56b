// Chooses the page by the address, and says whether what it shows is current.

import { h, put, say } from "./dom.js";
import { gangs } from "./gangs.js";
import { follow, listen, live } from "./live.js";
import { map } from "./map.js";
import { overview } from "./overview.js";
import { pod } from "./pod.js";
import { pods } from "./pods.js";
import { preemptions } from "./preemptions.js";
import { whatIf } from "./whatif.js";

// By the address behind the #: title, and a function that fills the page and returns what ends it.
const PAGES = { "": ["Overview", overview], map: ["Map", map], pods: ["Pods", pods], whatif: ["What if", whatIf] };
const ABOUT_PODS = { pod: ["Pod", pod], gangs: ["Gangs", gangs], preemptions: ["Preemptions", preemptions] };

const main = document.getElementById("main");
const status = document.getElementById("status");
let leave = () => {};
let shown = null;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function open() {
  const [path, query = ""] = location.hash.slice(1).replace(/^\//, "").split("?");
  const [place, ...rest] = path.split("/").map(decoded);
  if (shown === location.hash) return;
  const moved = shown !== null;
  shown = location.hash;
  leave();
  main.className = "";
  put(main);
  const parameters = new URLSearchParams(query);
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.place === (place in ABOUT_PODS ? "pods" : place)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const [title, show] = PAGES[place] ?? ABOUT_PODS[place] ?? PAGES[""];
  document.title = `${rest.join("/") || title} – Flotilla`;
  leave = show(main, parameters, rest) ?? (() => {});
  if (moved) main.focus({ preventScroll: true });
}

function tellStatus() {
  const problems = Object.values(live.overview.problems);
  const bad = live.failure || problems[0] || "";
  status.classList.toggle("problem", Boolean(bad));
  const loading = live.overview.loaded === false ? "reading the cluster" : "live";
  say(status, bad || (live.connected ? loading : "connecting"));
}

function askForToken(why) {
  return new Promise((done) => {
    const field = h("input", { type: "password", autocomplete: "off", required: true, id: "token" });
    const form = h("form", { class: "sheet stack", onsubmit: (event) => {
      event.preventDefault();
      shown = null;
      open();
      done(field.value.trim());
    } },
      h("h1", {}, "A token is needed"),
      h("p", { class: "quiet" }, why),
      h("label", { htmlFor: "token" }, "Bearer token, as of kubectl create token; it is kept by this page only, until it is closed", field),
      h("p", {}, h("button", { class: "main" }, "Show the console")));
    leave();
    leave = () => {};
    put(main, form);
    field.focus();
  });
}

put(document.getElementById("pages"), Object.entries(PAGES).map(([place, [title]]) =>
  h("a", { href: `#/${place}`, "data-place": place }, title)));
addEventListener("hashchange", open);
listen(tellStatus);
open();
follow(askForToken);
