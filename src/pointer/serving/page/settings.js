// What is asked for, in three forms: the controls of the page, the body of a request, and the link to share.
// A state is `{constraints, model, options}`; options hold only what differs from the server's default. A control with
// `data-own` has a default of its own, which is therefore always told.

const decodingOf = (form) => form.elements.decoding.value;
const controls = (form) => [...form.querySelectorAll("[data-option]")];
const isBox = (control) => control.type === "checkbox";
const isRelevant = (control) => !control.closest("[data-of][hidden]");

// The slider says about how many words; the server is told from how many to how many.
const isLength = (control) => control.dataset.option === "length";
export function wordsAbout(words) {
  const spread = Math.max(1, Math.round(0.15 * words));
  return [Math.max(1, words - spread), words + spread];
}

function isDefault(control) {
  if (isBox(control)) return control.checked === control.defaultChecked;
  if (control.options) return control.options[control.selectedIndex].defaultSelected;
  return control.value === control.defaultValue || (control.value === "" && !control.validity.badInput);
}

function read(control) {
  if (isBox(control)) return control.checked;
  if (isLength(control)) return wordsAbout(Number(control.value)).join("-");
  if (!["number", "range"].includes(control.type)) return control.value;
  // What is no number goes to the server as it is not, so that there is one place that complains.
  return control.validity.badInput ? "?" : Number(control.value);
}

function put(control, text) {
  if (isBox(control)) control.checked = text === "true";
  else if (isLength(control)) putLength(control, text.split("-").map(Number));
  else if (!control.options || [...control.options].some((option) => option.value === text)) control.value = text;
}

export function putLength(control, [low, high = low]) {
  control.value = Math.round((low + high) / 2);
}

function reset(control) {
  if (isBox(control)) control.checked = control.defaultChecked;
  else if (control.options) control.value = [...control.options].find((option) => option.defaultSelected).value;
  else control.value = control.defaultValue;
}

export function readOptions(form) {
  const options = decodingOf(form) === "greedy" ? {} : { decoding: decodingOf(form) };
  for (const control of controls(form)) {
    const isOwn = "own" in control.dataset && isRelevant(control);
    if (isChanged(control) || isOwn) options[control.dataset.option] = read(control);
  }
  // A beam gives at most as many texts as it is wide; who asks for more without naming a width wants a wider one.
  if (options.decoding === "beam" && options.n > 4 && !("width" in options)) options.width = options.n;
  return options;
}

export function resetOptions(part) {
  controls(part).forEach(reset);
}

export function writeOptions(form, options) {
  form.elements.decoding.value = ["sample", "beam"].includes(options.decoding) ? options.decoding : "greedy";
  resetOptions(form);
  for (const control of controls(form)) {
    const value = options[control.dataset.option];
    if (value !== undefined) put(control, String(value));
  }
}

// Hides what means nothing to the chosen decoding, which also keeps it out of the request.
export function showRelevant(form) {
  for (const field of form.querySelectorAll("[data-of]")) {
    field.hidden = !field.dataset.of.split(" ").includes(decodingOf(form));
  }
}

const isChanged = (control) => isRelevant(control) && !isDefault(control);

export const changedIn = (part) => controls(part).filter(isChanged).length;

// ---- The link: `#c=new+york&c=tax+cuts&model=wiki&decoding=sample&n=3`; each `c` is an entry of the constraint language

export function toHash({ constraints, model, options }) {
  const parameters = new URLSearchParams(constraints.map((constraint) => ["c", constraint]));
  if (model) parameters.set("model", model);
  for (const [name, value] of Object.entries(options)) parameters.set(name, value);
  return `#${parameters}`;
}

export function fromHash(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  const constraints = parameters.getAll("c").map((text) => text.trim()).filter(Boolean);
  const { c, model = "", ...options } = Object.fromEntries(parameters);
  return constraints.length ? { constraints, model, options } : null;
}
