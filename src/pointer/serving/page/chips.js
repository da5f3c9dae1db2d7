// The constraints as chips: typed, pasted, edited in place, and put in order by hand or by key.

import { appear, isCalm, rearrange } from "./motion.js";

const FAR_ENOUGH = 6; // pixels after which a press is a drag

// `;`, a new line, or a comma that is not inside a number such as 1,000.
const SEPARATOR = /[;\n\r\t]|(?<!\d),|,(?!\d)/;
// While someone types, a comma behind a digit may yet become a number.
const TYPED_SEPARATOR = /[;\n\r\t]|(?<!\d),|,(?=\D)/;

const tidy = (text) => text.split(/\s+/).filter(Boolean).join(" ");
const split = (text) => text.split(SEPARATOR).map(tidy).filter(Boolean);

export class Chips {
  #box; // around the list and the entry; chips and entry share its lines
  #list;
  #entry;
  #changed;
  #say;
  #drag = null;
  #wasDragged = false;

  constructor(list, entry, { changed, say }) {
    this.#box = list.parentElement;
    this.#list = list;
    this.#entry = entry;
    this.#changed = changed;
    this.#say = say;
    this.#listenToEntry();
    list.addEventListener("keydown", (event) => this.#pressed(event));
    this.#box.addEventListener("click", (event) => this.#clicked(event));
    this.#box.addEventListener("pointerdown", (event) => this.#grab(event));
    this.#box.addEventListener("pointermove", (event) => this.#pull(event));
    this.#box.addEventListener("pointerup", () => this.#drop());
    this.#box.addEventListener("pointercancel", () => this.#drop());
  }

  get values() {
    return this.#chips().map((chip) => chip.dataset.text);
  }

  set values(texts) {
    this.#list.replaceChildren(...texts.map((text) => this.#build(text)));
    this.#update();
  }

  // What still stands in the entry, or is being edited, becomes a chip.
  commit() {
    this.#list.querySelector(".editor")?.blur();
    this.add(this.#entry.value);
    this.#entry.value = "";
  }

  add(text) {
    const texts = split(text);
    if (!texts.length) return;
    const chips = texts.map((one) => this.#build(one));
    this.#list.append(...chips);
    if (!isCalm()) chips.forEach((chip) => appear(chip));
    this.#say(`${texts.join(", ")} added.`);
    this.#update();
  }

  // Points at the chip that the server complained about (its number counts from 1); at none without a number.
  blame(number) {
    this.#chips().forEach((chip, i) => chip.classList.toggle("wrong", i + 1 === number));
  }

  #chips() {
    return [...this.#list.children];
  }

  #update() {
    const chips = this.#chips();
    chips.forEach((chip, i) => {
      const text = chip.dataset.text;
      chip.querySelector(".face")?.setAttribute("aria-label", `${text}, ${i + 1} of ${chips.length}`);
      chip.querySelector(".remove")?.setAttribute("aria-label", `Remove ${text}`);
    });
    this.#changed();
  }

  #build(text) {
    const chip = document.createElement("li");
    chip.className = "chip";
    const face = document.createElement("button");
    Object.assign(face, { type: "button", className: "face" });
    face.setAttribute("aria-describedby", "chip-keys");
    const remove = document.createElement("button");
    // Not a stop of the Tab key: Delete does the same, and chips would be twice as long to walk through.
    Object.assign(remove, { type: "button", className: "remove", tabIndex: -1, textContent: "\u00d7" });
    chip.append(face, remove);
    this.#name(chip, text);
    return chip;
  }

  #name(chip, text) {
    chip.dataset.text = text;
    chip.querySelector(".face").textContent = text;
  }

  // ---- The entry

  #listenToEntry() {
    const entry = this.#entry;
    entry.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && entry.value.trim()) {
        event.preventDefault(); // an Enter in an empty entry submits the form
        this.commit();
      } else if (event.key === "Backspace" && entry.value === "" && this.values.length) {
        event.preventDefault();
        this.#takeBack();
      } else if (event.key === "ArrowLeft" && entry.value === "" && this.values.length) {
        event.preventDefault();
        this.#focus(this.values.length - 1);
      }
    });
    entry.addEventListener("input", (event) => {
      if (event.isComposing || !TYPED_SEPARATOR.test(entry.value)) return;
      const parts = entry.value.split(TYPED_SEPARATOR);
      const rest = parts.pop();
      this.add(parts.join(";"));
      entry.value = rest.trimStart();
    });
    entry.addEventListener("paste", (event) => {
      // A single-line input would turn the lines of what is pasted into one.
      const text = event.clipboardData.getData("text");
      if (!SEPARATOR.test(text)) return;
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
    this.#entry.value = chip.dataset.text;
    chip.remove();
    this.#say(`Editing ${this.#entry.value}.`);
    this.#update();
  }

  // ---- One chip

  #clicked(event) {
    const chip = event.target.closest(".chip");
    if (this.#wasDragged) this.#wasDragged = false; // letting go of a chip is no click
    else if (event.target.closest(".remove")) this.#remove(chip);
    else if (event.target.closest(".face")) this.#edit(chip);
    else if (event.target === this.#box) this.#entry.focus();
  }

  #pressed(event) {
    const face = event.target.closest(".face");
    if (!face) return;
    const chip = face.parentElement;
    const place = this.#chips().indexOf(chip);
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (step && (event.altKey || event.shiftKey)) this.#move(chip, place + step);
    else if (step) this.#focus(place + step);
    else if (event.key === "Home") this.#focus(0);
    else if (event.key === "End") this.#focus(this.values.length - 1);
    else if (event.key === "Delete" || event.key === "Backspace") this.#remove(chip);
    else if (event.key === "F2") this.#edit(chip);
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
    this.#say(`${chip.dataset.text} is now ${place + 1} of ${chips.length}.`);
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
    this.#say(`${chip.dataset.text} removed.`);
    this.#update();
  }

  #edit(chip) {
    const text = chip.dataset.text;
    const editor = document.createElement("input");
    Object.assign(editor, { className: "editor", value: text, spellcheck: false, autocomplete: "off" });
    editor.enterKeyHint = "done";
    editor.setAttribute("aria-label", `Edit ${text}`);
    const place = this.#chips().indexOf(chip);
    const fit = () => { editor.size = Math.max(editor.value.length, 2); };
    let isOver = false;
    const finish = (kept, focused) => {
      if (isOver) return; // removing the editor makes it blur once more
      isOver = true;
      chip.replaceWith(...(kept ? [this.#build(kept)] : []));
      this.#update();
      if (focused) this.#focus(place);
    };
    editor.addEventListener("input", fit);
    editor.addEventListener("blur", () => finish(tidy(editor.value), false));
    editor.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      finish(event.key === "Enter" ? tidy(editor.value) : text, true);
    });
    fit();
    chip.replaceChildren(editor);
    editor.select();
    editor.focus();
  }

  // ---- Dragging, by mouse, pen and finger alike

  #grab(event) {
    this.#wasDragged = false;
    const face = event.target.closest(".face");
    if (!face || event.button !== 0) return;
    const chip = face.parentElement;
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
    this.#say(`${drag.chip.dataset.text} is now ${place + 1} of ${this.values.length}.`);
    this.#update();
  }
}
