// The constraints as chips: typed, pasted, put in order by hand or by key. A chip has a menu that says how its words are
// used, and between two of them stands a lock: closed, they stay in this order.

import { entriesOf, folded, isCompound, lengthOf, read, shown, tidy, typed, unfolded, write } from "./language.js";
import { appear, isCalm, rearrange } from "./motion.js";

const FAR_ENOUGH = 6; // pixels after which a press is a drag
const KINDS = { maybe: "if it fits", never: "never" };

// How an entry is used, in words.
function kindOf(entry) {
  if (isCompound(entry)) return "";
  const { use, isAnyForm } = read(entry);
  return [KINDS[use], isAnyForm && "any form"].filter(Boolean).join(", ");
}

// The padlock; the page's style opens it.
function padlock() {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "0 0 24 24");
  icon.setAttribute("aria-hidden", "true");
  for (const [name, shape] of [["bow", "M8 11V8a4 4 0 0 1 8 0v3"], ["body", "M6 11h12v8H6Z"]]) {
    const path = document.createElementNS(icon.namespaceURI, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", shape);
    icon.append(path);
  }
  return icon;
}

export class Chips {
  #box; // around the list and the entry; chips and entry share its lines
  #list;
  #entry;
  #menu; // the dialog of one chip
  #chip = null; // whose menu is open
  #changed;
  #say;
  #measure;
  #drag = null;
  #wasDragged = false;

  constructor(list, entry, menu, { changed, say, measure }) {
    this.#box = list.parentElement;
    this.#list = list;
    this.#entry = entry;
    this.#menu = menu;
    this.#changed = changed;
    this.#say = say;
    this.#measure = measure;
    this.#listenToEntry();
    this.#listenToMenu();
    list.addEventListener("keydown", (event) => this.#pressed(event));
    this.#box.addEventListener("click", (event) => this.#clicked(event));
    this.#box.addEventListener("pointerdown", (event) => this.#grab(event));
    this.#box.addEventListener("pointermove", (event) => this.#pull(event));
    this.#box.addEventListener("pointerup", () => this.#drop());
    this.#box.addEventListener("pointercancel", () => this.#drop());
  }

  get size() {
    return this.#chips().length;
  }

  // As the server reads them.
  get entries() {
    return folded(this.#chips().map((chip) => ({ entry: chip.dataset.entry, isFree: "free" in chip.dataset })));
  }

  set entries(entries) {
    this.#list.replaceChildren();
    this.#append(entries);
    this.#update();
  }

  // Do all words that are placed stay in order? Null where there are not two of them.
  get isOrdered() {
    const locks = this.#locks();
    return locks.length ? locks.every((lock) => lock.getAttribute("aria-pressed") === "true") : null;
  }

  set isOrdered(isOrdered) {
    for (const lock of this.#locks()) lock.closest(".chip").toggleAttribute("data-free", !isOrdered);
    this.#say(isOrdered ? "In this order." : "In any order.");
    this.#update();
  }

  // What still stands in the entry becomes a chip.
  commit() {
    this.add(this.#entry.value);
    this.#entry.value = "";
  }

  add(text) {
    const entries = entriesOf(text);
    if (!entries.length) return;
    const chips = this.#append(entries);
    if (!isCalm()) chips.forEach((chip) => appear(chip));
    this.#say(`${entries.join(", ")} added.`);
    this.#update();
  }

  // Points at the chip that the server complained about (its number counts from 1); at none without a number.
  blame(number) {
    this.#chips().forEach((chip, i) => chip.classList.toggle("wrong", i + 1 === number));
  }

  // A length among the entries is for the page's slider, if that can say it.
  #append(entries) {
    const lengths = entries.filter(lengthOf);
    if (lengths.length) this.#measure(lengthOf(lengths.at(-1)));
    const rest = entries.filter((entry) => !lengths.includes(entry));
    const found = this.size ? rest.map((entry) => ({ entry, isFree: this.isOrdered === false })) : unfolded(rest);
    const chips = found.map((one) => this.#build(one));
    this.#list.append(...chips);
    return chips;
  }

  #chips() {
    return [...this.#list.children];
  }

  #locks() {
    return [...this.#list.querySelectorAll(".lock:not([hidden])")];
  }

  #update() {
    const chips = this.#chips();
    let before = null; // what is never used has no place, so nothing is before or behind it
    chips.forEach((chip, i) => {
      const text = shown(chip.dataset.entry);
      const kind = kindOf(chip.dataset.entry);
      const named = [text, kind, `${i + 1} of ${chips.length}`].filter(Boolean).join(", ");
      chip.querySelector(".face").setAttribute("aria-label", named);
      chip.querySelector(".remove").setAttribute("aria-label", `Remove ${text}`);
      const lock = chip.querySelector(".lock");
      const isPlaced = read(chip.dataset.entry).use !== "never";
      lock.hidden = !isPlaced || before === null;
      lock.setAttribute("aria-pressed", `${!("free" in chip.dataset)}`);
      lock.setAttribute("aria-label", `Keep ${before} before ${text}`);
      lock.title = "free" in chip.dataset ? "In any order" : "In this order";
      if (isPlaced) before = text;
    });
    this.#changed();
  }

  #build({ entry, isFree }) {
    const make = (tag, className) => Object.assign(document.createElement(tag), { className });
    const chip = make("li", "chip");
    const lock = Object.assign(make("button", "lock"), { type: "button" });
    lock.append(padlock());
    const face = Object.assign(make("button", "face"), { type: "button" });
    face.setAttribute("aria-describedby", "chip-keys");
    face.setAttribute("aria-haspopup", "dialog");
    // Not a stop of the Tab key: Delete does the same, and chips would be twice as long to walk through.
    const remove = Object.assign(make("button", "remove"), { type: "button", tabIndex: -1, textContent: "\u00d7" });
    const pill = make("span", "pill");
    pill.append(face, remove);
    chip.append(lock, pill);
    chip.toggleAttribute("data-free", isFree);
    this.#name(chip, entry);
    return chip;
  }

  #name(chip, entry) {
    chip.dataset.entry = entry;
    chip.classList.toggle("maybe", read(entry).use === "maybe");
    chip.classList.toggle("never", read(entry).use === "never");
    const words = Object.assign(document.createElement("span"), { textContent: shown(entry) });
    const kind = Object.assign(document.createElement("small"), { textContent: kindOf(entry) });
    chip.querySelector(".face").replaceChildren(words, ...(kind.textContent ? [kind] : []));
  }

  // ---- The entry

  #listenToEntry() {
    const entry = this.#entry;
    entry.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && entry.value.trim()) {
        event.preventDefault(); // an Enter in an empty entry submits the form
        this.commit();
      } else if (event.key === "Backspace" && entry.value === "" && this.size) {
        event.preventDefault();
        this.#takeBack();
      } else if (event.key === "ArrowLeft" && entry.value === "" && this.size) {
        event.preventDefault();
        this.#focus(this.size - 1);
      }
    });
    entry.addEventListener("input", (event) => {
      if (event.isComposing) return;
      const { entries, rest } = typed(entry.value);
      if (!entries.length) return;
      this.add(entries.join(";"));
      entry.value = rest;
    });
    entry.addEventListener("paste", (event) => {
      // A single-line input would turn the lines of what is pasted into one.
      const text = event.clipboardData.getData("text");
      if (entriesOf(text).length < 2) return;
      event.preventDefault();
      this.add(entry.value + text);
      entry.value = "";
    });
    // What is left behind in the entry is meant; it should look so.
    entry.addEventListener("blur", () => {
      if (document.hasFocus()) this.commit(); // not when only the window was left
    });
  }

  #takeBack() {
    const chip = this.#chips().at(-1);
    this.#entry.value = chip.dataset.entry;
    chip.remove();
    this.#say(`Editing ${this.#entry.value}.`);
    this.#update();
  }

  // ---- One chip

  #clicked(event) {
    const chip = event.target.closest(".chip");
    if (this.#wasDragged) this.#wasDragged = false; // letting go of a chip is no click
    else if (event.target.closest(".remove")) this.#remove(chip);
    else if (event.target.closest(".lock")) this.#toggle(chip);
    else if (event.target.closest(".face")) this.#open(chip);
    else if (event.target === this.#box) this.#entry.focus();
  }

  #pressed(event) {
    const face = event.target.closest(".face");
    if (!face) return;
    const chip = face.closest(".chip");
    const place = this.#chips().indexOf(chip);
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (step && (event.altKey || event.shiftKey)) this.#move(chip, place + step);
    else if (step) this.#focus(place + step);
    else if (event.key === "Home") this.#focus(0);
    else if (event.key === "End") this.#focus(this.size - 1);
    else if (event.key === "Delete" || event.key === "Backspace") this.#remove(chip);
    else if (event.key === "F2") this.#open(chip);
    else return;
    event.preventDefault();
  }

  #focus(place) {
    const chip = this.#chips()[Math.max(place, 0)];
    (chip?.querySelector(".face") ?? this.#entry).focus();
  }

  #move(chip, place) {
    const chips = this.#chips();
    if (place < 0 || place >= chips.length) return;
    this.#put(chip, place);
    chip.querySelector(".face").focus(); // moving an element takes the focus from it
    this.#say(`${shown(chip.dataset.entry)} is now ${place + 1} of ${chips.length}.`);
    this.#update();
  }

  // Puts a chip at a place; the others glide aside, and so does the chip itself unless a hand holds it.
  #put(chip, place, held = null) {
    const chips = this.#chips();
    const from = chips.indexOf(chip);
    if (from !== place) rearrange(chips, () => chips[place][place > from ? "after" : "before"](chip), held);
  }

  #remove(chip) {
    const chips = this.#chips();
    const place = chips.indexOf(chip);
    rearrange(chips.filter((one) => one !== chip), () => chip.remove());
    this.#focus(place);
    this.#say(`${shown(chip.dataset.entry)} removed.`);
    this.#update();
  }

  // The lock before a chip.
  #toggle(chip) {
    const isFree = chip.toggleAttribute("data-free");
    this.#update();
    const lock = chip.querySelector(".lock");
    const pair = lock.getAttribute("aria-label").replace(/^Keep (.*) before (.*)$/s, "$1 and $2");
    this.#say(`${pair}: ${isFree ? "in any order" : "in this order"}.`);
  }

  // ---- The menu of a chip

  get #form() {
    return this.#menu.querySelector("form");
  }

  #listenToMenu() {
    const { elements } = this.#form;
    this.#menu.addEventListener("click", (event) => {
      if (event.target === this.#menu) this.#menu.close("keep"); // what is around it
    });
    this.#menu.addEventListener("cancel", () => { this.#menu.returnValue = ""; }); // Escape
    this.#menu.addEventListener("close", () => this.#close(this.#menu.returnValue));
    elements.text.addEventListener("input", () => this.#showParts());
  }

  #open(chip) {
    const { entry } = chip.dataset;
    const { use, isAnyForm, options } = read(entry);
    const { elements } = this.#form;
    this.#chip = chip;
    elements.text.value = isCompound(entry) ? entry : options.join(" | ");
    elements.use.value = use;
    elements.forms.checked = isAnyForm;
    this.#showParts();
    this.#menu.returnValue = "";
    this.#menu.showModal();
    const { left, bottom } = chip.querySelector(".pill").getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.#menu;
    this.#menu.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
    this.#menu.style.top = `${Math.max(8, Math.min(bottom + 6, innerHeight - height - 8))}px`;
    elements.text.select();
  }

  // Of a group only the text can be changed here.
  #showParts() {
    this.#menu.querySelector("[data-part=kinds]").hidden = isCompound(tidy(this.#form.elements.text.value));
  }

  #close(answer) {
    const chip = this.#chip;
    this.#chip = null;
    const place = this.#chips().indexOf(chip);
    const text = tidy(this.#form.elements.text.value);
    if (answer === "remove" || (answer && !text)) return this.#remove(chip);
    if (answer) this.#name(chip, this.#chosen(text));
    this.#update();
    this.#focus(place);
  }

  // What the menu says. Marks that were typed count as if they had been chosen.
  #chosen(text) {
    if (isCompound(text)) return text;
    const { elements } = this.#form;
    const found = read(text);
    const use = found.use === "always" ? elements.use.value : found.use;
    return write({ ...found, use, isAnyForm: found.isAnyForm || elements.forms.checked });
  }

  // ---- Dragging, by mouse, pen and finger alike

  #grab(event) {
    this.#wasDragged = false;
    const face = event.target.closest(".face");
    if (!face || event.button !== 0) return;
    const chip = face.closest(".chip");
    const box = chip.getBoundingClientRect();
    const hold = { x: event.clientX - box.left, y: event.clientY - box.top };
    this.#drag = { chip, hold, start: { x: event.clientX, y: event.clientY }, isMoving: false };
  }

  #pull(event) {
    const drag = this.#drag;
    if (!drag) return;
    if (event.buttons === 0) return this.#drop(); // the button was let go outside the box
    if (!drag.isMoving) {
      if (Math.hypot(event.clientX - drag.start.x, event.clientY - drag.start.y) < FAR_ENOUGH) return;
      drag.isMoving = true;
      drag.chip.classList.add("held");
      this.#box.setPointerCapture(event.pointerId); // not the chip: moving it in the page would lose the capture
    }
    this.#put(drag.chip, this.#placeAt(event.clientX, event.clientY), drag.chip);
    this.#follow(event);
  }

  // Where the chip in hand belongs: before or behind the chip under the pointer, whichever half the pointer is in.
  #placeAt(x, y) {
    const chips = this.#chips();
    const from = chips.indexOf(this.#drag.chip);
    const frame = this.#frame();
    for (const [i, chip] of chips.entries()) {
      // Offsets, not rectangles: where the chips are going to be, not where they glide at the moment.
      const [right, down] = [x - frame.left - chip.offsetLeft, y - frame.top - chip.offsetTop];
      const isUnder = right >= 0 && right <= chip.offsetWidth && down >= 0 && down <= chip.offsetHeight;
      if (i === from || !isUnder) continue;
      const slot = right < chip.offsetWidth / 2 ? i : i + 1;
      return slot > from ? slot - 1 : slot;
    }
    return from;
  }

  // What the offsets of the chips count from.
  #frame() {
    const { left, top } = this.#box.getBoundingClientRect();
    return { left: left + this.#box.clientLeft, top: top + this.#box.clientTop };
  }

  #follow(event) {
    const { chip, hold } = this.#drag;
    const frame = this.#frame();
    const x = event.clientX - hold.x - frame.left - chip.offsetLeft;
    const y = event.clientY - hold.y - frame.top - chip.offsetTop;
    chip.style.transform = `translate(${x}px, ${y}px)`;
  }

  #drop() {
    const drag = this.#drag;
    this.#drag = null;
    if (!drag?.isMoving) return;
    this.#wasDragged = true;
    rearrange([drag.chip], () => {
      drag.chip.style.transform = "";
      drag.chip.classList.remove("held");
    });
    const place = this.#chips().indexOf(drag.chip);
    this.#say(`${shown(drag.chip.dataset.entry)} is now ${place + 1} of ${this.size}.`);
    this.#update();
  }
}
