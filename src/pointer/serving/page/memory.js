// What the browser keeps, for this tab or for good. One that keeps nothing (cookies switched off) is no reason to fail.

function kept(storage) {
  const tried = (action) => {
    try {
      return action(storage()) ?? "";
    } catch {
      return "";
    }
  };
  return {
    get: (name) => tried((place) => place.getItem(`pointer-${name}`)),
    set: (name, value) => tried((place) => place.setItem(`pointer-${name}`, value)),
  };
}

export const thisTab = kept(() => sessionStorage);
export const forGood = kept(() => localStorage);
