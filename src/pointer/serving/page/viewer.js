// The result: a line that grows, a slider through its stages, the candidates, and all stages side by side.

import { shown } from "./language.js";
import { Line, still } from "./line.js";
import { isCalm } from "./motion.js";
import { count, readable } from "./words.js";

const PACE = 1250; // milliseconds a stage stays before the next one comes
const HURRY = 500; // milliseconds within which a text that is finished stands there as a whole
const MOST_LABELS = 9;

const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

const STOPPED = {
  converged: "finished",
  max_stages: "stopped after the most stages",
  max_length: "stopped at the longest length",
  length: "as near to the length as it gets",
};

// An element with a class and what is in it, as text and elements, never as markup.
function make(tag, className, ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

const inWords = (words) => words.map((word) => word.text).join(" ");

// The words of every stage. The paper ends with a stage that adds nothing; nobody needs to see it.
function stagesOf(generation) {
  const words = readable(generation);
  while (words.length > 1 && inWords(words.at(-1)) === inWords(words.at(-2))) words.pop();
  return words;
}

// What was left to the model, and what it chose: forms, order, and what it did without.
function chosen({ asked = [], order = [], constraints = [] }) {
  const forms = order.map((number, i) => [shown(asked[number]), constraints[i]]);
  const differ = forms.filter(([wanted, found]) => wanted.toLowerCase() !== found.toLowerCase());
  const isMoved = order.some((number, i) => i > 0 && number < order[i - 1]);
  const unused = asked.filter((_, number) => !order.includes(number)).map(shown);
  const parts = [
    ...differ.map(([wanted, found]) => `${found} for ${wanted}`),
    isMoved && `in the order ${constraints.join(", ")}`,
    unused.length && `without ${unused.join(", ")}`,
  ].filter(Boolean);
  return parts.length ? `Chosen: ${parts.join("; ")}.` : "";
}

export class Viewer {
  #root;
  #say;
  #line;
  #texts = []; // the candidates: what the server sent, and `words`, the words of every stage
  #chosen = 0;
  #stage = 0;
  #isRunning = false;
  #isFresh = false; // is it running, without a stage so far?
  #isPlaying = false;
  #pace = PACE;
  #timer = null;

  constructor(root, say) {
    this.#root = root;
    this.#say = say;
    this.#line = new Line(this.#part("line"));
    this.#part("slider").addEventListener("input", (event) => this.#scrub(Number(event.target.value)));
    this.#part("slider").addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      this.#toggle();
    });
    this.#part("play").addEventListener("click", () => this.#toggle());
    this.#part("cards").addEventListener("click", (event) => {
      const card = event.target.closest("button");
      if (card) this.#choose(Number(card.value));
    });
    for (const name of ["ticks", "ladder"]) {
      this.#part(name).addEventListener("click", (event) => {
        const mark = event.target.closest("[data-stage]");
        if (mark) this.#scrub(Number(mark.dataset.stage));
      });
    }
  }

  // The text that is chosen: as the server sent it, and the words of its stages.
  get chosen() {
    return this.#texts[this.#chosen];
  }

  clear() {
    this.#pause();
    this.#isRunning = false;
    this.#texts = [];
    this.#line.clear();
    this.#part("reserve").replaceChildren();
    this.#root.hidden = true;
  }

  // A request is on its way. What was there stays until the first stage arrives, so nothing collapses meanwhile.
  start() {
    this.#pause();
    this.#isRunning = true;
    this.#isFresh = true;
  }

  // The next stage of the text that is being written. X0 comes at once, so that the wait has a face. A model that
  // writes from left to right sends its stage again and again, each time longer; and X0, once it has chosen another
  // order or form, which is shown with the stage that follows.
  add({ stage, tokens, text, constraints }) {
    const known = this.#isFresh ? [] : this.#texts[0].stages;
    if (stage < known.length - 1) {
      known[stage] = tokens;
      return;
    }
    this.#texts = [this.#read({ constraints, stages: [...known.slice(0, stage), tokens], text })];
    this.#chosen = 0;
    if (this.#isFresh) this.#open();
    this.#isFresh = false;
    this.#draw();
    if (isCalm()) this.#show(this.#last());
    else if (stage > 0) this.#play(PACE);
  }

  // All texts, best first. If the best is the one that has been growing, it goes on from where it is.
  finish(generations) {
    const seen = this.#isFresh ? [] : this.#texts[0].stages;
    this.#isRunning = false;
    this.#texts = generations.map((generation) => this.#read(generation));
    this.#chosen = 0;
    const best = this.#texts[0];
    const shape = (stages) => JSON.stringify(stages.map((tokens) => tokens.map((token) => token.new)));
    const goesOn = seen.length > 0 && shape(seen) === shape(best.stages.slice(0, seen.length));
    this.#drawCards();
    if (goesOn) {
      this.#draw();
      this.#show(this.#stage);
    } else this.#open();
    if (isCalm()) this.#show(this.#last());
    else this.#play(Math.min(PACE, HURRY / Math.max(1, this.#last() - this.#stage)));
    const several = generations.length > 1 ? `${generations.length} texts, the best one: ` : "";
    const size = plural(count(best.words.at(-1)).all, "word");
    this.#say([`${several}${size} after ${plural(this.#last(), "stage")}.`, best.text, chosen(best)].join(" "));
  }

  // The request ended early; what has grown so far stays.
  stop() {
    this.#isRunning = false;
    if (this.#texts.length) this.#draw();
  }

  #part(name) {
    return this.#root.querySelector(`[data-part="${name}"]`);
  }

  #read(generation) {
    return { ...generation, words: stagesOf(generation) };
  }

  #last() {
    return this.#texts[this.#chosen].words.length - 1;
  }

  // From X0.
  #open() {
    this.#root.hidden = false;
    this.#line.clear();
    this.#stage = 0;
    if (this.#isRunning) this.#drawCards();
    this.#draw();
    this.#show(0);
    this.#reveal();
  }

  // On a small screen the text is below the form; whoever asked for it wants to see it.
  #reveal() {
    const isBelow = this.#part("line").getBoundingClientRect().top > innerHeight * 0.75;
    if (isBelow) this.#root.scrollIntoView({ behavior: isCalm() ? "auto" : "smooth" });
  }

  // ---- Moving through the stages

  // A hand on the slider is faster than words can glide, so they jump.
  #show(stage, atOnce = false) {
    this.#stage = stage;
    this.#line.show(this.#texts[this.#chosen].words[stage], atOnce);
    this.#mark();
  }

  #scrub(stage) {
    this.#pause();
    this.#show(stage, true);
  }

  #toggle() {
    if (this.#isPlaying) return this.#pause();
    if (this.#stage === this.#last()) this.#show(0);
    this.#play(PACE);
  }

  #play(pace) {
    if (pace < this.#pace) this.#wait(); // what is waiting goes on at the new pace
    this.#pace = pace;
    this.#isPlaying = this.#isRunning || this.#stage < this.#last();
    if (this.#timer === null && this.#stage < this.#last()) {
      this.#timer = setTimeout(() => {
        this.#timer = null;
        this.#show(this.#stage + 1);
        this.#play(this.#pace);
      }, this.#pace);
    }
    this.#mark();
  }

  #wait() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  #pause() {
    this.#wait();
    this.#isPlaying = false;
    if (this.#texts.length) this.#mark();
  }

  #choose(number) {
    this.#pause();
    this.#chosen = number;
    this.#stage = this.#last();
    this.#line.clear(); // another text, whose words have nothing to do with those of this one
    this.#draw();
    this.#show(this.#stage);
  }

  // ---- Drawing: what depends on the texts, then what depends on the stage

  #draw() {
    const words = this.#texts[this.#chosen].words;
    // Every text in its final form, unseen and in the same place: the box is as high as the highest from the beginning.
    this.#part("reserve").replaceChildren(...this.#texts.map((text) => make("p", "line", ...still(text.words.at(-1)))));
    this.#drawTicks(words);
    this.#part("ladder").replaceChildren(...words.map((stage, k) => {
      const jump = make("button", "jump", this.#name(k));
      jump.type = "button";
      jump.setAttribute("aria-label", `Go to ${this.#name(k).toLowerCase()}`);
      const row = make("li", "", jump, make("p", "row", ...still(stage)));
      jump.dataset.stage = k;
      return row;
    }));
    this.#mark();
  }

  #drawTicks(words) {
    const last = words.length - 1;
    const every = Math.ceil(words.length / MOST_LABELS);
    this.#part("slider").max = Math.max(last, 1);
    this.#part("slider").disabled = last === 0;
    this.#part("ticks").replaceChildren(...words.map((stage, k) => {
      const isBare = k % every && k !== last; // too many labels would run into each other
      const tick = make("li", isBare ? "bare" : "", k ? `${k}` : "Start", make("small", "", `${count(stage).all}`));
      tick.dataset.stage = k;
      tick.style.setProperty("--at", last ? k / last : 0);
      return tick;
    }));
  }

  #drawCards() {
    const cards = this.#texts.length > 1 ? this.#texts : [];
    this.#part("cards").hidden = !cards.length;
    this.#part("cards").replaceChildren(...cards.map((text, number) => {
      const facts = make("small", "", plural(count(text.words.at(-1)).all, "word"));
      const row = make("span", "row", ...still(text.words.at(-1)));
      const card = make("button", "card", make("b", "", `${number + 1}`), row, facts);
      Object.assign(card, { type: "button", value: number });
      return make("li", "", card);
    }));
  }

  #mark() {
    const text = this.#texts[this.#chosen];
    this.#part("line").classList.toggle("done", this.#stage === this.#last() && !this.#isRunning);
    this.#markPlayer(text);
    this.#note("chosen", this.#isRunning ? "" : chosen(text));
    this.#note("remark", text.missing?.length ? `Not in the text: ${text.missing.join(", ")}.` : text.remark);
    for (const [k, tick] of [...this.#part("ticks").children].entries()) {
      tick.classList.toggle("current", k === this.#stage);
    }
    for (const [k, row] of [...this.#part("ladder").children].entries()) {
      if (k === this.#stage) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    }
    for (const card of this.#part("cards").querySelectorAll("button")) {
      card.setAttribute("aria-pressed", `${Number(card.value) === this.#chosen}`);
    }
  }

  #note(part, sentence = "") {
    this.#part(part).hidden = !sentence;
    this.#part(part).textContent = sentence;
  }

  #markPlayer(text) {
    const [slider, play] = [this.#part("slider"), this.#part("play")];
    const { all } = count(text.words[this.#stage]);
    const news = this.#news(text);
    slider.value = this.#stage;
    slider.style.setProperty("--done", this.#last() ? this.#stage / this.#last() : 0);
    const sentence = [this.#name(this.#stage), plural(all, "word"), news].filter(Boolean);
    slider.setAttribute("aria-valuetext", sentence.join(", "));
    this.#part("caption").textContent = sentence.join(" \u00b7 ");
    play.dataset.does = this.#isPlaying ? "pause" : this.#stage === this.#last() ? "replay" : "play";
    play.setAttribute("aria-label", { pause: "Pause", play: "Play", replay: "Play again" }[play.dataset.does]);
    play.disabled = this.#last() === 0;
  }

  #name(stage) {
    if (stage === 0) return "Your words";
    return this.#isRunning ? `Stage ${stage}` : `Stage ${stage} of ${this.#last()}`;
  }

  // What the stage has brought, or why it is the last one.
  #news(text) {
    const { fresh } = count(text.words[this.#stage]);
    const isEnd = this.#stage === this.#last() && !this.#isRunning;
    return [this.#stage > 0 && fresh && `${fresh} new`, isEnd && STOPPED[text.stopped]].filter(Boolean).join(", ");
  }
}
