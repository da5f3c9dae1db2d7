// Talking to the server. Whatever goes wrong becomes one Failure with a sentence and a hint.

import { thisTab } from "./memory.js";

export class Failure extends Error {
  constructor({ type = "Error", message, hint = "" }, status = 0, wait = null) {
    super(message);
    Object.assign(this, { type, hint, status, wait });
  }
}

const UNREACHABLE = {
  type: "Unreachable",
  message: "The server cannot be reached.",
  hint: "See whether it still runs, then try again. Your words are kept.",
};
const INTERRUPTED = {
  type: "Interrupted",
  message: "The connection broke off before the text was finished.",
  hint: "Try again. Your words are kept.",
};

export const keepKey = (key) => thisTab.set("key", key);
export const hasKey = () => thisTab.get("key") !== "";

// What a header can carry; anything else can be no key, and fetch would throw.
const isSendable = (key) => /^[\x21-\x7e]+$/.test(key);

async function request(path, { body, signal } = {}) {
  const key = thisTab.get("key");
  const headers = {};
  if (isSendable(key)) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    const content = body && JSON.stringify(body);
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: content, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(UNREACHABLE);
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

async function failureOf(response) {
  const answer = await response.json().catch(() => null);
  const silence = { message: `The server answered ${response.status}, and did not say why.`, hint: "Try again." };
  const error = answer?.error ?? silence;
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new Failure(error, response.status, Number.isFinite(seconds) ? Math.max(seconds, 1) : null);
}

export async function models() {
  return (await request("v1/models")).json();
}

// Generates: gives `{event: "stage" | "done", data}` as they arrive. An abort throws the signal's own error.
export async function* generate(body, signal) {
  const response = await request("v1/generate/stream", { body, signal });
  try {
    for await (const { event, data } of events(response.body)) {
      if (event === "error") throw new Failure(data.error);
      yield { event, data };
      if (event === "done") return;
    }
  } catch (error) {
    if (signal.aborted || error instanceof Failure) throw error;
  }
  throw new Failure(INTERRUPTED);
}

// Server-sent events out of a body; EventSource itself can only GET.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    // A line break may be cut in two between \r and \n, so what looks like a lone \r at the end waits for more.
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const found = parse(block);
      if (found) yield found;
    }
  }
}

function parse(block) {
  let event = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "event") event = value;
    if (field === "data") data.push(value);
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}
