// What is taken away: the text, all that the server said of it, or a picture of its stages.

const SIZE = 18; // of a letter, in the picture
const WIDTH = 860;

function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const escaped = (text) => text.replace(/[&<>"]/g, (mark) => `&#${mark.codePointAt(0)};`);

// Lines of words that are as wide as the picture at most, each word with its place.
function laidOut(words) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  const lines = [[]];
  let at = 0;
  for (const word of words) {
    pen.font = `${word.constraint === null ? "" : "bold "}${SIZE}px Georgia, serif`;
    const space = at && !word.glued ? SIZE / 3 : 0;
    const width = pen.measureText(word.text).width;
    if (at && at + space + width > WIDTH - 160) {
      lines.push([]);
      at = 0;
    }
    const left = at && !word.glued ? at + SIZE / 3 : at;
    lines.at(-1).push({ ...word, left, width });
    at = left + width;
  }
  return lines;
}

function drawnWord({ text, left, width, constraint, isNew }, top) {
  const weight = constraint === null ? "normal" : "bold";
  const colour = isNew ? "#0b5cb8" : "#1c2330";
  const line = constraint === null ? "" : `<rect x="${140 + left}" y="${top + 5}" width="${width}" height="2" fill="#0b5cb8"/>`;
  return `<text x="${140 + left}" y="${top}" font-weight="${weight}" fill="${colour}" textLength="${width}">${escaped(text)}</text>${line}`;
}

// The stages one below the other, as an SVG.
export function picture(stages) {
  let top = 40;
  const rows = stages.map((words, stage) => {
    const name = `<text x="20" y="${top}" fill="#5b626d" font-size="14">${stage ? `Stage ${stage}` : "Your words"}</text>`;
    const lines = laidOut(words).map((line) => {
      const drawn = line.map((word) => drawnWord(word, top)).join("");
      top += 1.6 * SIZE;
      return drawn;
    });
    top += SIZE;
    return name + lines.join("");
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${top}" font-family="Georgia, serif" font-size="${SIZE}">`
    + `<rect width="100%" height="100%" fill="#ffffff"/>${rows.join("")}</svg>`;
}

export function download(what, { words, ...generation }) {
  if (what === "text") save("pointer.txt", "text/plain;charset=utf-8", `${generation.text}\n`);
  if (what === "json") save("pointer.json", "application/json", `${JSON.stringify(generation, null, 2)}\n`);
  if (what === "picture") save("pointer.svg", "image/svg+xml", picture(words));
}
