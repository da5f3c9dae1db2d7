// The constraint language (docs/constraints.md) as far as chips show it. A chip holds one entry, as the server reads it;
// what an entry means is decided there alone. Nothing here touches the page.

// What belongs together: quotes, braces and brackets, which may hold brackets; else one character.
const TOGETHER = /"(?:\\.|[^"\\])*"|\{[^{}]*\}|\[(?:[^[\]]|\[[^[\]]*\])*\]|\\.|./gsu;
// Quotes, braces or brackets that somebody is still typing.
const OPEN = /(?:^|[\s;,|>!?])(?:"[^"]*|\{[^}]*|\[[^\]]*)$/u;
const MARKED = /^[?!](?=[\p{L}\p{N}_"{~])/u;
const GROUP = /^\[.*;.*\]$/su;
const LENGTH = /^=(\d+)(?:-(\d+))?(?: words)?$/;

export const tidy = (text) => text.split(/\s+/).filter(Boolean).join(" ");

function cut(text, isBetween) {
  const parts = [""];
  for (const { 0: piece, index } of text.matchAll(TOGETHER)) {
    if (piece.length === 1 && isBetween(piece, index)) parts.push("");
    else parts[parts.length - 1] += piece;
  }
  return parts;
}

// A comma in 1,000 separates nothing; one that was just typed behind a digit may yet become such a comma.
function separates(text, isTyped) {
  const isDigit = (place) => /\d/.test(text[place] ?? (isTyped ? "0" : ""));
  return (piece, at) => /[;\n\r\t]/.test(piece) || (piece === "," && !(isDigit(at - 1) && isDigit(at + 1)));
}

// The entries of what was typed or pasted: `;`, a new line or a comma stands between them.
export const entriesOf = (text) => cut(text, separates(text, false)).map(tidy).filter(Boolean);

// While somebody types: the entries that are complete, and the rest.
export function typed(text) {
  if (OPEN.test(text)) return { entries: [], rest: text };
  const parts = cut(text, separates(text, true));
  const rest = parts.pop();
  return { entries: parts.map(tidy).filter(Boolean), rest: rest.trimStart() };
}

// ---- One entry: how it is used, whether its forms are free, and its alternatives

const ONE_FORM = /^~\p{L}\S*(?: ~\p{L}\S*)*$/u;
const isQuoted = (text) => /["{}]/.test(text);
const plain = (option) => option.replace(/(^|\s)~(?=\p{L})/gu, "$1");
const anyForm = (option) => (isQuoted(option) ? option : plain(option).replace(/(^|\s)(?=\p{L})/gu, "$1~"));

export function read(entry) {
  const use = { "?": "maybe", "!": "never" }[MARKED.exec(entry)?.[0]] ?? "always";
  const term = use === "always" ? entry : entry.slice(1);
  const found = cut(term, (piece) => piece === "|").map(tidy).filter(Boolean);
  const options = found.length ? found : [term];
  const isAnyForm = options.every((option) => ONE_FORM.test(option));
  return { use, isAnyForm, options: isAnyForm ? options.map(plain) : options };
}

export function write({ use, isAnyForm, options }) {
  const term = options.map(isAnyForm ? anyForm : (option) => option).join("|");
  const mark = { always: "", maybe: "?", never: "!" }[use];
  return !mark || MARKED.test(mark + term) ? mark + term : mark + quoted(term);
}

const quoted = (text) => `"${text.replace(/["\\]/g, "\\$&")}"`;
const unquoted = (text) => (/^"(?:\\.|[^"\\])*"$/s.test(text) ? text.slice(1, -1).replace(/\\(.)/gs, "$1") : text);

// As people read it: "tea or cake".
export const shown = (entry) => read(entry).options.map((option) => unquoted(plain(option))).join(" or ");

// More than words with marks: a group, a chain, a length. It can be edited as a whole only.
export const isCompound = (entry) => GROUP.test(entry) || / > /.test(entry) || /^=\d/.test(entry);

export function lengthOf(entry) {
  const [, low, high = low] = LENGTH.exec(entry) ?? [];
  return low ? [Number(low), Number(high)] : null;
}

// ---- Order: chips `{entry, isFree}`, where a free one need not come after the one before it

const isForbidden = (entry) => read(entry).use === "never";

// Inside a group its own marks are read, so what holds them as text is quoted.
function inGroup(entry) {
  if (isCompound(entry) || !/[;[\]>]/.test(entry)) return entry;
  const parts = read(entry);
  return write({ ...parts, options: parts.options.map((option) => (isQuoted(option) ? option : quoted(option))) });
}

// What the server is sent: the entries in order, or one group of those that are free to move.
export function folded(chips) {
  const placed = chips.filter(({ entry }) => !isForbidden(entry));
  const runs = [];
  for (const { entry, isFree } of placed) {
    if (!runs.length || isFree) runs.push([]);
    runs.at(-1).push(entry);
  }
  if (runs.length < 2) return chips.map(({ entry }) => entry);
  const group = runs.map((run) => run.map(inGroup).join(" > ")).join("; ");
  return [`[${group}]`, ...chips.map(({ entry }) => entry).filter(isForbidden)];
}

// The chips of some entries: a group that is alone is taken apart, as locks can say the same.
export function unfolded(entries) {
  const placed = entries.filter((entry) => !isForbidden(entry));
  return entries.flatMap((entry) => {
    if (placed.length > 1 || !GROUP.test(entry)) return [{ entry, isFree: false }];
    const runs = cut(entry.slice(1, -1), (piece) => piece === ";").map((run) => run.split(/\s>\s/).map(tidy));
    return runs.flatMap((run, k) => run.map((part, i) => ({ entry: part, isFree: k > 0 && i === 0 })));
  });
}
