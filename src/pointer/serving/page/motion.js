// Movement without jumps: note where things are, change the page, let each glide from where it was to where it is.

const EASE = "cubic-bezier(.22, .8, .3, 1)";
const wish = matchMedia("(prefers-reduced-motion: reduce)");

export const isCalm = () => wish.matches;

export const places = (elements) => new Map([...elements].map((one) => [one, one.getBoundingClientRect()]));

export function glide(element, from, duration = 520) {
  const to = element.getBoundingClientRect();
  const [x, y] = [from.left - to.left, from.top - to.top];
  if (!x && !y) return;
  element.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration, easing: EASE });
}

export function appear(element, delay = 0) {
  element.animate(
    [{ opacity: 0, transform: "translateY(.4em)" }, { opacity: 1, transform: "none" }],
    { duration: 520, delay, easing: EASE, fill: "backwards" },
  );
}

export function fade(element, frames, duration = 420) {
  return element.animate(frames, { duration, easing: "ease-out" }).finished.catch(() => undefined);
}

// Reorders elements with `change()` and lets all but one (that which a hand holds) glide.
export function rearrange(elements, change, held = null) {
  const before = places(elements);
  change();
  if (isCalm()) return;
  for (const [element, from] of before) if (element !== held && element.isConnected) glide(element, from, 200);
}
