// From the server's stages (WordPiece tokens, lower-case) to the words that people read. Nothing here touches the page.
//
// Every piece of a text is one object that lives through the stages. It takes its capitals and spaces from the text as
// it stands in the end, so a word looks the same at every stage and only its neighbours come and go.

const UNKNOWN = "[UNK]";
const FRAME = ["[CLS]", "[SEP]", "[PAD]"]; // around a text, not of it; the preset `released` shows them
const CLOSING = /^[.,!?;:)\]}%]$/;
const OPENING = /^[([{$#]$/;

const bare = (token) => token.replace(/^##/, "");
export const isMark = (text) => !/[\p{L}\p{N}\p{So}]/u.test(text);

// The stages as lists of pieces; a piece that stays is the same object in both of its stages.
function trace(stages) {
  let count = 0;
  let before = [];
  return stages.map((all, born) => {
    const stage = all.filter(({ token }) => !FRAME.includes(token));
    // The preset `released` does not say what is new; there, a token stays if it is the next one of the stage before.
    const isTold = stage.filter((token) => !token.new).length === before.length;
    let next = 0;
    const pieces = stage.map(({ token, new: isNew }) => {
      const stays = next < before.length && (isTold ? !isNew : token === before[next].token);
      if (stays) return before[next++];
      const spaced = !token.startsWith("##");
      return { id: count++, token, born, written: bare(token), spaced, place: null, owner: null };
    });
    before = pieces;
    return pieces;
  });
}

// As the server's vocabulary sees a constraint: no accents, plain quotes, lower case.
function fold(text) {
  return text
    .replace(/[\u2018-\u201b\u2032`\u00b4]/g, "'")
    .replace(/[\u201c-\u201f\u00ab\u00bb\u2033]/g, '"')
    .replace(/[\u2010\u2011]/g, "-")
    .replaceAll("\u2026", "...")
    .normalize("NFD")
    .replace(/[\p{M}\p{Cf}\s]/gu, "")
    .toLowerCase();
}

// Gives every piece of X0 the number of its constraint. The stages do not tell it, so one pattern is laid over all
// constraints: the pieces in order, between any two of them perhaps the border of a constraint.
function own(pieces, constraints) {
  const border = "\u0001";
  const pattern = pieces.map(({ token }) =>
    token === UNKNOWN ? `[^${border}]+?` : bare(token).replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  const found = new RegExp(`^${pattern.join(`(${border}?)`)}$`, "u").exec(constraints.map(fold).join(border));
  let owner = 0;
  pieces.forEach((piece, i) => {
    if (found && i) owner += found[i].length;
    piece.owner = found ? owner : i;
  });
  return found !== null;
}

// Reads off the text how each piece is written; false where text and pieces do not agree.
function spell(pieces, text, constraints, areOwned) {
  let at = 0;
  for (let i = 0; i < pieces.length; i++) {
    const piece = pieces[i];
    const isConstraint = areOwned && piece.owner !== null;
    const isRest = isConstraint && i > 0 && pieces[i - 1].owner === piece.owner;
    piece.place = i;
    if (isRest) {
      piece.written = "";
      continue;
    }
    const gap = /\s*/y;
    gap.lastIndex = at;
    const space = gap.exec(text)[0].length;
    const wanted = isConstraint ? constraints[piece.owner] : bare(piece.token);
    const written = text.slice(at + space, at + space + wanted.length);
    if (written.toLowerCase() !== wanted.toLowerCase()) return false;
    piece.written = written;
    piece.spaced = space > 0;
    at += space + wanted.length;
  }
  return text.slice(at).trim() === "";
}

// Is there a space between two pieces that stand side by side now, but perhaps not in the end?
function isSpaced(before, piece) {
  if (before.place !== null && piece.place === before.place + 1) return piece.spaced;
  if (piece.token.startsWith("##") && piece.owner === null) return false;
  return !(CLOSING.test(piece.written) && !piece.spaced) && !OPENING.test(before.written);
}

// The words of one stage. `constraint` is the number of the constraint a word belongs to, or null; `glued` words follow
// without a space; `goesOn` words are followed by another word of the same phrase.
function wordsOf(pieces, stage) {
  const words = [];
  let before = null;
  for (const piece of pieces) {
    const isNew = stage > 0 && piece.born === stage;
    const last = words.at(-1);
    if (piece.owner === null && piece.token.startsWith("##") && last?.constraint === null) {
      last.text += piece.written;
      last.isNew ||= isNew;
    } else if (piece.written !== "") {
      const glued = before !== null && !isSpaced(before, piece);
      piece.written.split(/\s+/).forEach((text, i, parts) => {
        const id = `${piece.id}.${i}`;
        words.push({ id, text, isNew, constraint: piece.owner, glued: glued && i === 0, goesOn: i + 1 < parts.length });
      });
    }
    before = piece;
  }
  return words;
}

// A text without its stages, where the two do not agree: the constraints are where the server says. Its offsets count
// characters, those of JavaScript halves of some, hence `length`.
function plainWords(text, spans) {
  const constraintAt = (place) => spans.findIndex(([start, end]) => start <= place && place < end);
  const length = (part) => Array.from(part).length;
  const words = [];
  let place = 0;
  for (const part of text.split(/(\s+)/)) {
    if (part.trim()) {
      const owner = constraintAt(place);
      const goesOn = owner >= 0 && constraintAt(place + length(part)) === owner;
      const constraint = owner < 0 ? null : owner;
      words.push({ id: `t${place}`, text: part, isNew: false, constraint, glued: false, goesOn });
    }
    place += length(part);
  }
  return words;
}

// A growing text: `{constraints, stages, text, spans}` as the server sends them -> the words of every stage.
export function readable({ constraints, stages, text, spans = [] }) {
  const traced = trace(stages);
  const areOwned = own(traced[0], constraints);
  const agrees = spell(traced.at(-1), text, constraints, areOwned);
  return traced.map((pieces, stage) =>
    !agrees && pieces === traced.at(-1) ? plainWords(text, spans) : wordsOf(pieces, stage));
}

export function count(words) {
  const real = words.filter((word) => !isMark(word.text));
  return { all: real.length, fresh: real.filter((word) => word.isNew).length };
}
