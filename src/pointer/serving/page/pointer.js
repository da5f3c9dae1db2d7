// The page: asks for words, sends them, shows what grows. Each part has a file of its own; this one ties them together.

import { Failure, generate, hasKey, keepKey, models } from "./api.js";
import { Chips } from "./chips.js";
import { download } from "./download.js";
import { GALLERY } from "./gallery.js";
import { entriesOf, unfolded } from "./language.js";
import { forGood, thisTab } from "./memory.js";
import {
  changedIn, fromHash, putLength, readOptions, resetOptions, showRelevant, toHash, wordsAbout, writeOptions,
} from "./settings.js";
import { Viewer } from "./viewer.js";

// What models and their styles write.
const WRITES = {
  everyday: "Short everyday sentences",
  captions: "Picture captions",
  reviews: "Restaurant reviews",
  news: "News",
  wiki: "Encyclopedia sentences",
};
const SECONDS_BETWEEN_LOOKS = 3; // while the server starts
const NO_WORDS = new Failure({ message: "There are no words yet.", hint: "Type one, or choose an example." });

const $ = (id) => document.getElementById(id);
const form = $("ask");

function say(message) {
  $("status").textContent = message;
}

const chips = new Chips($("chips"), $("entry"), $("chip-menu"), { changed: wordsChanged, say, measure });
const viewer = new Viewer($("result"), say);

let running = null; // the AbortController of the request that is under way
let retry = null; // what "Try again" and a new key do
let countdown = null;
let shown = null; // what was asked for the text that is shown
const shared = fromHash(location.hash);
const wanted = shared ?? fromHash(thisTab.get("draft"));

// ---- What is asked for

// Without a model, as long as none is known, the server takes its own.
function state() {
  const [model, style] = $("model").value ? $("model").value.split("|") : [wanted?.model, wanted?.options.style];
  const options = { ...readOptions(form), ...(style && { style }) };
  return { constraints: chips.entries, model, options };
}

function restore({ constraints, options }) {
  writeOptions(form, options);
  chips.entries = constraints;
  optionsChanged();
  $("more").open ||= changedIn($("more")) > 0;
  $("how").open ||= $("more").open;
}

// The kinds of texts that can be chosen: `model` or `model|style`.
const kinds = () => [...$("model").options].map((option) => option.value);
const hasModel = (name) => kinds().some((kind) => kind.split("|")[0] === name);

function chooseModel(name, style) {
  const found = kinds().filter((kind) => kind.split("|")[0] === name);
  $("model").value = found.find((kind) => kind === `${name}|${style}`) ?? found[0];
  describeModel();
}

function wordsChanged() {
  const isEmpty = chips.size === 0;
  $("clear").hidden = isEmpty;
  $("order").hidden = chips.isOrdered === null;
  $("order").textContent = chips.isOrdered ? "Free the order" : "Fix the order";
  $("entry").placeholder = isEmpty ? "a word or a phrase" : "";
  chips.blame(null);
  keepDraft();
}

function optionsChanged() {
  showRelevant(form);
  $("temperature-value").textContent = $("temperature").value;
  $("length-value").textContent = lengthInWords();
  $("length").setAttribute("aria-valuetext", lengthInWords());
  const changed = changedIn($("more"));
  $("changed").hidden = changed === 0;
  $("changed").textContent = `${changed} changed`;
  $("defaults").hidden = changed === 0;
  keepDraft();
}

function lengthInWords() {
  const words = Number($("length").value);
  return words ? `${wordsAbout(words).join(" to ")} words` : "any";
}

// A length that was typed among the words.
function measure(length) {
  putLength($("length"), length);
  optionsChanged();
}

// A reload in the middle of typing loses nothing.
function keepDraft() {
  thisTab.set("draft", toHash(state()));
}

function startOver() {
  running?.abort();
  shown = null;
  chips.entries = [];
  $("entry").value = "";
  viewer.clear();
  hideProblem();
  $("empty").hidden = false;
  history.replaceState(null, "", location.pathname + location.search);
  $("entry").focus();
}

// ---- Writing

async function write() {
  chips.commit();
  if (running) return;
  if (!chips.size) return showProblem(NO_WORDS);
  const asked = state();
  running = new AbortController();
  const { signal } = running;
  hideProblem();
  $("notice").hidden = true;
  showBusy(true);
  $("box").classList.add("settled"); // until somebody types again, the entry needs no row of its own
  try {
    await receive(asked, signal);
    history.replaceState(null, "", toHash(asked));
  } catch (error) {
    if (!signal.aborted) showProblem(error, write);
    viewer.stop();
  } finally {
    running = null;
    showBusy(false);
  }
}

async function receive(asked, signal) {
  viewer.start();
  for await (const { event, data } of generate(asked, signal)) {
    $("empty").hidden = true;
    shown = asked;
    if (event === "stage") viewer.add(data);
    if (event === "done") viewer.finish(data.results[0]);
  }
  $("redraw").hidden = asked.options.decoding !== "sample";
}

function showBusy(isBusy) {
  const hadFocus = [$("write"), $("cancel")].includes(document.activeElement);
  $("write").hidden = isBusy;
  $("cancel").hidden = !isBusy;
  $("result").setAttribute("aria-busy", `${isBusy}`);
  if (hadFocus) $(isBusy ? "cancel" : "write").focus();
  if (isBusy) say("Writing.");
}

function reseed() {
  $("seed").value = Number($("seed").value || 0) + 1;
  optionsChanged();
}

// ---- When it does not work

function showProblem(error, again = null) {
  const unforeseen = { message: "Something on this page went wrong.", hint: String(error) };
  const failure = error instanceof Failure ? error : new Failure(unforeseen);
  const isLocked = failure.status === 401;
  hideProblem();
  const { message, hint } = isLocked ? keyWanted() : pointedAt(failure);
  retry = again;
  $("problem").querySelector(".message").textContent = message;
  $("problem").querySelector(".hint").textContent = hint;
  $("key-form").hidden = !isLocked;
  $("again").hidden = !again || isLocked || wouldFailAgain(failure);
  $("problem").hidden = false;
  $("problem").scrollIntoView({ block: "nearest" });
  if (isLocked) $("key").focus();
  wait([429, 503].includes(failure.status) ? failure.wait ?? SECONDS_BETWEEN_LOOKS : 0);
}

// The server's own sentence about keys is for programs.
function keyWanted() {
  const hint = "It stays in this tab and goes to this server only.";
  return { message: hasKey() ? "The server does not know this key." : "This server asks for a key.", hint };
}

const wouldFailAgain = ({ type, status }) => status === 422 || ["UsageError", "ConstraintError"].includes(type);

function hideProblem() {
  clearInterval(countdown);
  $("problem").hidden = true;
  chips.blame(null);
  for (const control of form.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
}

// The server's sentences begin with what they are about: `constraint 3 ("") is empty`, `temperature: expected ...`,
// `options.n: expected ...`, `Expected n of at most ...`. Marks that, and says it in the words of this page.
function pointedAt({ message, hint }) {
  const [, number, name] = /^constraint (\d+)\b|^(?:options\.|Expected )?(\w+)(?:[:.]| of )/.exec(message) ?? [];
  if (number) chips.blame(Number(number)); // a group is one entry, and its error says where
  const control = name && form.querySelector(`[data-option="${CSS.escape(name)}"]`);
  if (!control) return { message, hint };
  control.setAttribute("aria-invalid", "true");
  for (const part of [$("how"), $("more")]) part.open ||= part.contains(control);
  const label = `\u201c${control.labels[0].firstChild.data?.trim() || control.labels[0].textContent.trim()}\u201d`;
  const named = (sentence) => sentence.replace(new RegExp(`\\b(options\\.)?${name}\\b`), label);
  return { message: named(message), hint: named(hint) };
}

function wait(seconds) {
  const button = $("again");
  const tick = () => {
    button.disabled = seconds > 0;
    button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
    if (seconds-- <= 0) clearInterval(countdown);
  };
  tick();
  countdown = setInterval(tick, 1000);
}

function notify(message) {
  say(message);
  $("notice").textContent = message;
  $("notice").hidden = false;
}

// ---- Models and examples

async function loadModels() {
  try {
    const { default: first, models: found, limits } = await models();
    showModels(first, found);
    showLimits(limits);
    hideProblem();
  } catch (error) {
    if (error.status !== 503) return showProblem(error, begin);
    const reason = error.type === "Starting" ? "The server is starting." : error.message;
    notify(`${reason} This page goes on by itself.`);
    await new Promise((done) => setTimeout(done, 1000 * (error.wait ?? SECONDS_BETWEEN_LOOKS)));
    return loadModels();
  }
  $("notice").hidden = true;
  return true;
}

let descriptions = new Map();

function showModels(first, found) {
  descriptions = new Map(found.map(({ name, parameters, description = "" }) => {
    const [brief] = /^[^;(]*?(?=;|\s\(|\.\s|\.?$)/.exec(description.trim()) ?? [""]; // model cards go on for a while
    const size = `${(parameters / 1e6).toFixed(1)} million parameters`;
    return [name, `The model ${name}: ${size}${brief && `; learnt from ${brief}`}.`];
  }));
  const choices = found.flatMap(({ name, styles = [] }) =>
    styles.length > 1 ? styles.map((style) => [`${name}|${style}`, WRITES[style] ?? style]) : [[name, WRITES[name] ?? name]]);
  const labels = choices.map(([, label]) => label);
  $("model").replaceChildren(...choices.map(([value, label], i) => {
    const isSecond = labels.indexOf(label) < i; // a small model writes what a style of a larger one writes, too
    return new Option(isSecond ? `${label} (small model)` : label, value);
  }));
  $("model").disabled = false;
  chooseModel(first);
  showExamples();
}

// What one request may ask for, where this server allows less than POINTER does.
function showLimits(limits = {}) {
  for (const [name, most] of Object.entries(limits)) {
    const control = form.querySelector(`[data-option="${CSS.escape(name)}"]`);
    if (control?.max) control.max = Math.min(control.max, most);
  }
}

function describeModel() {
  $("model-help").textContent = descriptions.get($("model").value.split("|")[0]) ?? "";
}

const kindFor = (wanted) => kinds().find((kind) => kind.split("|").at(-1) === wanted);

// Examples of what this server can write; where it knows none of these kinds, of what others write.
function showExamples() {
  const suited = GALLERY.filter(({ kind }) => kindFor(kind));
  $("examples").replaceChildren(...(suited.length ? suited : GALLERY).map(({ kind, asked, text }) => {
    const make = (tag, textContent) => Object.assign(document.createElement(tag), { textContent });
    const button = Object.assign(make("button", ""), { type: "button", className: "example" });
    const entries = entriesOf(asked);
    button.append(make("b", unfolded(entries).map(({ entry }) => entry).join(" \u00b7 ")), make("span", text));
    button.addEventListener("click", () => {
      chips.entries = entries;
      if (kindFor(kind)) chooseModel(...kindFor(kind).split("|"));
      write();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

// ---- Copying

async function copy(button, text, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByHand(text); // the clipboard of today exists on secure pages only, and a server in the house is none
  }
  const label = button.textContent;
  if (button.dataset.isDone) return;
  button.dataset.isDone = "true";
  button.textContent = done;
  say(`${done}.`);
  setTimeout(() => {
    button.textContent = label;
    delete button.dataset.isDone;
  }, 1800);
}

function copyByHand(text) {
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}

function link() {
  const address = new URL(location.href);
  address.hash = toHash(shown ?? state());
  return address.href;
}

// ---- Dark and light

function isDark() {
  const kept = document.documentElement.dataset.theme;
  return kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  $("theme").setAttribute("aria-pressed", `${isDark()}`);
}

function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  forGood.set("theme", theme);
  showTheme();
}

// ---- Beginning

// A link runs once, by itself: its reader came for the text. A draft only comes back.
async function begin() {
  if (!(await loadModels())) return;
  if (hasModel(wanted?.model)) chooseModel(wanted.model, wanted.options.style);
  if (!shared) return;
  write();
  if (shared.model && !hasModel(shared.model)) {
    const used = $("model").value.split("|")[0];
    notify(`The link names the model "${shared.model}", which this server does not have. Written by ${used}.`);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  write();
});
form.addEventListener("input", (event) => {
  if (event.target.matches("[data-option], [name=decoding]")) optionsChanged();
});
$("model").addEventListener("change", () => { describeModel(); keepDraft(); });
$("defaults").addEventListener("click", () => { resetOptions($("more")); optionsChanged(); });
$("reseed").addEventListener("click", reseed);
$("redraw").addEventListener("click", () => { reseed(); write(); });
$("clear").addEventListener("click", startOver);
$("order").addEventListener("click", () => { chips.isOrdered = !chips.isOrdered; });
$("cancel").addEventListener("click", () => {
  running?.abort();
  notify("Stopped. Your words are kept.");
});
$("again").addEventListener("click", () => retry?.());
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey($("key").value.trim());
  $("key").value = "";
  retry?.();
});
$("copy").addEventListener("click", (event) => copy(event.currentTarget, viewer.chosen.text, "Copied"));
$("result").addEventListener("click", (event) => {
  const wish = event.target.closest("[data-download]")?.dataset.download;
  if (wish) download(wish, viewer.chosen);
});
$("entry").addEventListener("focus", () => $("box").classList.remove("settled"));
$("share").addEventListener("click", (event) => copy(event.currentTarget, link(), "Link copied"));
$("theme").addEventListener("click", toggleTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
addEventListener("hashchange", () => { if (fromHash(location.hash)) location.reload(); });

$("how").open = matchMedia("(min-width: 40rem)").matches; // on a phone the text comes first
showTheme();
restore(wanted ?? { constraints: [], options: {} });
begin();
