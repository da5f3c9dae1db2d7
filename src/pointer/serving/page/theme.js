// A classic script that blocks the first paint, so that a page that is kept dark never flashes white.
try {
  const kept = localStorage.getItem("pointer-theme");
  if (kept) document.documentElement.dataset.theme = kept;
} catch {
  // Storage is switched off: the page follows the system.
}
