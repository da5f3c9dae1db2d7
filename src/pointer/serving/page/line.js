// The line of text that grows. A word keeps its element through all stages, so it can glide when others come between.

import { appear, fade, glide, isCalm, places } from "./motion.js";
import { isMark } from "./words.js";

function dress(element, word) {
  const kinds = { key: word.constraint !== null, new: word.isNew, mark: isMark(word.text), "goes-on": word.goesOn };
  element.className = "word";
  for (const [kind, applies] of Object.entries(kinds)) element.classList.toggle(kind, applies);
  if (element.textContent !== word.text) element.textContent = word.text;
}

// `strong` and `span`, not classes alone: a constraint is marked for those who do not see the page, too.
function build(word) {
  const element = document.createElement(word.constraint === null ? "span" : "strong");
  dress(element, word);
  return element;
}

// Words with the spaces between them. What is glued shares a box that does not break at the end of a line.
function laidOut(words, elementOf) {
  const nodes = [];
  for (const word of words) {
    const element = elementOf(word);
    const last = nodes.at(-1);
    if (!word.glued || !last) {
      if (last) nodes.push(" ");
      nodes.push(element);
    } else if (last.className === "bond") {
      last.append(element);
    } else {
      const bond = document.createElement("span");
      bond.className = "bond";
      bond.append(last, element);
      nodes[nodes.length - 1] = bond;
    }
  }
  return nodes;
}

// The words of a stage that does not move.
export const still = (words) => laidOut(words, build);

export class Line {
  #box;
  #elements = new Map();

  constructor(box) {
    this.#box = box;
  }

  clear() {
    this.#elements.clear();
    this.#box.replaceChildren();
  }

  show(words, atOnce = false) {
    const moves = !isCalm() && !atOnce && this.#elements.size > 0;
    const before = this.#elements;
    const from = moves ? places(before.values()) : new Map();
    const wasNew = new Set([...before.values()].filter((element) => element.classList.contains("new")));
    this.#elements = new Map(words.map((word) => {
      const element = before.get(word.id) ?? build(word);
      dress(element, word);
      return [word.id, element];
    }));
    this.#box.replaceChildren(...laidOut(words, (word) => this.#elements.get(word.id)));
    for (const element of atOnce ? this.#elements.values() : []) element.getAnimations().forEach((one) => one.cancel());
    if (!isCalm() && !atOnce) this.#animate(from, wasNew, before);
  }

  #animate(from, wasNew, before) {
    const arrivals = [];
    for (const element of this.#elements.values()) {
      if (from.has(element)) this.#carry(element, from.get(element), wasNew.has(element));
      else arrivals.push(element);
    }
    // A light wave from left to right, of the same length however many words there are.
    arrivals.forEach((element, i) => appear(element, 120 + (260 * i) / arrivals.length));
    for (const element of before.values()) if (!element.isConnected) this.#leave(element, from.get(element));
  }

  #carry(element, from, wasNew) {
    const to = element.getBoundingClientRect();
    const isSameLine = Math.abs(from.top - to.top) < to.height / 2;
    if (isSameLine) {
      glide(element, from);
    } else {
      // Flying across the lines would cross everything else: it goes out there and comes in here.
      this.#leave(element, from);
      fade(element, [{ opacity: 0 }, { opacity: 1 }], 620);
    }
    if (wasNew && !element.classList.contains("new")) {
      const ground = element.classList.contains("mark") ? "transparent" : "var(--tint)";
      fade(element, [{ color: "var(--accent)", backgroundColor: ground }, {}], 620);
    }
  }

  // A copy stays behind and fades; it is not in the line, so nothing waits for it.
  async #leave(element, from) {
    if (!from) return;
    const ghost = element.cloneNode(true);
    const frame = this.#box.getBoundingClientRect();
    ghost.classList.add("ghost");
    ghost.setAttribute("aria-hidden", "true");
    ghost.style.left = `${from.left - frame.left}px`;
    ghost.style.top = `${from.top - frame.top}px`;
    this.#box.append(ghost);
    await fade(ghost, [{ opacity: 0.7 }, { opacity: 0 }], 220);
    ghost.remove();
  }
}
