// Connects the parts of the page.

import { Api } from "./api.js";
import { Chat } from "./chat.js";
import { byId } from "./dom.js";
import { EnginePanel } from "./engine.js";
import { Models } from "./models.js";
import { Settings } from "./settings.js";
import { load, save } from "./store.js";

const THEMES = ["auto", "dark", "light"];

/** What the last reading of the models failed with. */
let problem = "";

const api = new Api(() => settings.key);
const settings = new Settings(onKey);
const models = new Models(api, () => selectModel());
const engine = new EnginePanel(api, () => models.selected);
const chat = new Chat({ api, settings, models, onRefused, onAnswered });

byId("clear").addEventListener("click", () => chat.clear());
modes().forEach((radio) => radio.addEventListener("change", () => chooseMode(radio.value)));
panelButtons().forEach((button) => button.addEventListener("click", () => togglePanel(button)));
byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]));
document.addEventListener("keydown", onEscape);
setTheme(theme());
byId("input").focus();
await refresh();

async function onKey() {
  if (await refresh()) byId("status").textContent = "The server accepts the key.";
}

/** Reads the models, at start and with another key; returns whether it could. */
async function refresh() {
  try {
    await models.refresh();
    // What the chat reports in the meantime stays.
    if (byId("status").textContent === problem) byId("status").textContent = "";
    await selectModel();
    return true;
  } catch (e) {
    byId("status").textContent = problem = e.message;
    onRefused(e);
    return false;
  }
}

/** The mode that was chosen for the model, else the one that it can serve. */
async function selectModel() {
  engine.refreshPlacement();
  const model = models.selected;
  const chosen = load("modes", {})[model];
  const fitting = async () => ((await models.hasTemplate()) === false ? "complete" : "chat");
  const mode = chosen === "chat" || chosen === "complete" ? chosen : await fitting();
  if (model === models.selected && mode !== chat.mode && !chat.isBusy) showMode(mode);
}

function chooseMode(mode) {
  save("modes", { ...load("modes", {}), [models.selected]: mode });
  showMode(mode);
}

function showMode(mode) {
  modes().forEach((radio) => (radio.checked = radio.value === mode));
  chat.setMode(mode);
}

/** What an error can be answered with, beside its message. */
function onRefused(error) {
  if (error.status === 401) {
    togglePanel(
      panelButtons().find((button) => button.dataset.panel === "settings"),
      true,
    );
    settings.focusKey();
  } else if (chat.mode === "chat" && /no chat template/.test(error.message)) {
    const text = chat.conversation.turns.findLast((turn) => turn.role === "user")?.text ?? "";
    showMode("complete");
    byId("input").value = text;
    byId("status").textContent = "This model has no chat template: it continues texts instead.";
  }
}

function onAnswered() {
  models.refreshLoaded();
  engine.refreshPlacement();
}

function onEscape(event) {
  if (event.key !== "Escape" || event.isComposing || chat.stop()) return;
  const panel = event.target.closest?.("aside");
  const button = panel && panelButtons().find((b) => b.dataset.panel === panel.id);
  if (!button) return;
  togglePanel(button, false);
  button.focus();
}

function togglePanel(button, isOpen = byId(button.dataset.panel).hidden) {
  const name = button.dataset.panel;
  byId(name).hidden = !isOpen;
  button.setAttribute("aria-expanded", String(isOpen));
  if (name === "engine") engine.show(isOpen);
}

function theme() {
  const stored = load("theme", "auto");
  return THEMES.includes(stored) ? stored : "auto";
}

function setTheme(name) {
  save("theme", name);
  byId("theme").textContent = `Theme: ${name}`;
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function modes() {
  return [...document.querySelectorAll("input[name=mode]")];
}

function panelButtons() {
  return [...document.querySelectorAll("button[data-panel]")];
}
