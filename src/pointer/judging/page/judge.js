// One judge's page: shows two texts or one, sends every answer the moment it is chosen, goes on where the judge left off.
// The token comes from the part of the link behind "#", which browsers do not send anywhere by themselves.

const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
const $ = (id) => document.getElementById(id);

let study; // how many items there are, how many are done, which is next, what is asked
let item; // the one on the screen
const unsaved = new Map(); // path -> body: answers that the server has not confirmed
let saving = Promise.resolve();

async function request(path, body) {
  let response, content;
  try {
    response = await fetch(path, {
      method: body ? "PUT" : "GET",
      headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
    content = await response.json();
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (!response.ok) throw new Error(`${content.error.message} ${content.error.hint}`.trim());
  return content;
}

// ---- Time: how long the item has been on the screen, while nothing hides it.

const clock = {
  spent: 0,
  since: null,
  start() { this.spent = 0; this.since = document.hidden ? null : performance.now(); },
  turn(visible) {
    if (this.since !== null) this.spent += performance.now() - this.since;
    this.since = visible ? performance.now() : null;
  },
  seconds() { return (this.spent + (this.since === null ? 0 : performance.now() - this.since)) / 1000; },
};
document.addEventListener("visibilitychange", () => clock.turn(!document.hidden && !$("help").open));

function help() {
  clock.turn(false);
  $("help").showModal();
}

// ---- Showing

function show(section) {
  for (const one of ["item", "end", "problem"]) $(one).hidden = one !== section;
  $("progress").hidden = section === "problem";
}

function showProgress(found) {
  Object.assign(study, found);
  $("progress").max = study.items;
  $("progress").value = study.done;
}

function fill(element, pieces) {
  element.replaceChildren(...pieces.map(({ text, keyword }) => {
    if (!keyword) return document.createTextNode(text);
    const mark = document.createElement("mark");
    mark.textContent = text;
    return mark;
  }));
}

async function open(number) {
  if (number === null) return finish();
  item = await request(`api/items/${number}`);
  $("keywords").replaceChildren(...item.keywords.map((word) => {
    const entry = document.createElement("li");
    entry.textContent = word;
    return entry;
  }));
  item.texts.forEach((pieces, i) => fill($(`text-${"ab"[i]}`), pieces));
  for (const radio of document.querySelectorAll(".scale input")) {
    radio.checked = item.answers[radio.name] === Number(radio.value);
  }
  $("place").textContent = `${study.form === "pairs" ? "Pair" : "Text"} ${number} of ${study.items}`;
  $("back").disabled = number === 1;
  $("next").textContent = number === study.items ? "Finish" : "Next";
  tell("");
  show("item");
  mark(firstOpen());
  scrollTo(0, 0);
  $("place").focus();
  clock.start();
}

function finish() {
  item = undefined;
  $("place").textContent = "Finished";
  $("total").textContent = study.items;
  show("end");
  document.querySelector("#end h2").focus();
}

function fail(error) {
  $("reason").textContent = error.message;
  show("problem");
}

function tell(message, failed = false) {
  $("status").textContent = message;
  $("status").parentElement.classList.toggle("failed", failed);
  $("retry").hidden = !failed;
}

// ---- Questions: the marked one is that which the number keys answer.

const fieldsets = () => [...document.querySelectorAll("fieldset")];
const chosen = (fieldset) => fieldset.querySelector("input:checked");
const firstOpen = () => fieldsets().find((fieldset) => !chosen(fieldset));

function mark(fieldset) {
  for (const one of fieldsets()) one.classList.toggle("current", one === fieldset);
}

function build({ name, wording }) {
  const question = $("question").content.cloneNode(true);
  question.querySelector("legend b").textContent = name;
  question.querySelector("legend span").textContent = wording;
  question.querySelector(".scale").append(...study.choices.map((label, i) => {
    const option = document.createElement("label");
    const radio = Object.assign(document.createElement("input"), { type: "radio", name, value: i + 1, required: true });
    const face = document.createElement("span");
    const key = document.createElement("kbd");
    key.textContent = i + 1;
    key.setAttribute("aria-hidden", "true");
    face.append(key, label);
    option.append(radio, face);
    return option;
  }));
  const fieldset = question.querySelector("fieldset");
  fieldset.addEventListener("focusin", () => mark(fieldset));
  fieldset.addEventListener("change", (event) => answer(event.target));
  return question;
}

// ---- Answering: one request after the other, so that the last choice is the one that stays.

function answer(radio) {
  const seconds = Math.round(clock.seconds() * 10) / 10;
  unsaved.set(`api/items/${item.number}/answers/${radio.name}`, { choice: Number(radio.value), seconds });
  mark(firstOpen());
  return save();
}

function save() {
  saving = saving.then(async () => {
    for (const [path, body] of unsaved) {
      tell("Saving …");
      try {
        showProgress(await request(path, body));
      } catch (error) {
        tell(`Not saved. ${error.message}`, true);
        return;
      }
      if (unsaved.get(path) === body) unsaved.delete(path);
      tell("Saved");
    }
  });
  return saving;
}

let moving = false;

async function move(target) {
  if (moving || !item) return;
  moving = true;
  try {
    await save();
    if (!unsaved.size) await open(target());
  } catch (error) {
    fail(error);
  } finally {
    moving = false;
  }
}

const next = () => move(() => (item.number < study.items ? item.number + 1 : study.next));
const back = () => move(() => Math.max(1, item.number - 1));

$("item").addEventListener("submit", (event) => {
  event.preventDefault();
  next();
});
$("back").addEventListener("click", back);
$("review").addEventListener("click", () => open(study.items).catch(fail));
$("retry").addEventListener("click", save);
$("explain").addEventListener("click", help);
$("help").addEventListener("close", () => clock.turn(true));
$("reload").addEventListener("click", () => location.reload());
addEventListener("online", save);
addEventListener("hashchange", () => location.reload());
addEventListener("beforeunload", (event) => { if (unsaved.size) event.preventDefault(); });

document.addEventListener("keydown", (event) => {
  const elsewhere = !item || $("item").hidden || $("help").open || !$("shortcuts").checked;
  if (elsewhere || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  const marked = document.querySelector("fieldset.current");
  const radio = /^[1-9]$/.test(event.key) && marked?.querySelector(`input[value="${event.key}"]`);
  if (radio) {
    radio.checked = true;
    answer(radio);
    if (!firstOpen()) $("next").focus(); // so that Enter goes on
  } else if (event.key === "b" || event.key === "B") {
    back();
  } else if (event.key === "?") {
    help();
  } else {
    return;
  }
  event.preventDefault();
});

async function begin() {
  study = await request("api/study");
  document.body.dataset.form = study.form;
  $("questions").replaceChildren(...study.questions.map(build));
  showProgress({});
  await open(study.next);
  if (!Object.keys(item?.answers ?? {}).length && study.done === 0) help();
}

begin().catch(fail);
