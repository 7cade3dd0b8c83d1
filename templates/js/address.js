// What the page shows as a part of its address, "#operators?op=%2Fconv_3&q=stage1": a link that is copied shows the same.
"use strict";
const address = (() => {
  // Entries of the browser's history that hold all of it; one without this mark is of a link that was followed.
  const WHOLE = "whole";
  const listeners = [];
  let section = "";
  let shown = new URLSearchParams();

  function read() {
    const [first, ...rest] = location.hash.slice(1).split("?");
    section = first;
    shown = new URLSearchParams(rest.join("?"));
  }
  function write(step) {
    const told = shown.toString();
    const hash = told ? `#${section}?${told}` : section ? `#${section}` : location.pathname + location.search;
    // A page in a frame may have no history, and browsers refuse too many changes at once.
    try { history[step ? "pushState" : "replaceState"](WHOLE, "", hash); } catch { /* the link is not renewed */ }
  }

  const get = (key) => shown.get(key) || null;

  // Null takes the key away. A step is gone back by the browser's button; other changes renew the entry that is there.
  function set(key, value, { step = false, at = section } = {}) {
    if (value ? value === shown.get(key) : !shown.has(key)) return;
    if (value) shown.set(key, value);
    else shown.delete(key);
    shown.sort();
    section = at;
    write(step);
  }

  // The end of an address that shows a section with this alone.
  const link = (name, values) => `#${name}?${new URLSearchParams(values)}`;

  // The keyboard goes on from the section, as it does after a link.
  function go(name) {
    const part = name && document.getElementById(name);
    if (!part) return;
    part.scrollIntoView();
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }

  addEventListener("hashchange", () => {
    const followed = history.state !== WHOLE;
    if (followed && !location.hash.includes("?")) {
      // A link within the page: what is shown stays, and goes along.
      section = location.hash.slice(1);
      write(false);
      return;
    }
    read();
    listeners.forEach((listener) => listener());
    if (!followed) return;
    write(false);
    go(section);
  });

  read();
  if (history.state !== WHOLE) {
    // The browser looks for an anchor of that whole name.
    if (location.hash.includes("?")) go(section);
    write(false);
  }

  return { get, set, link, go, onChange: (listener) => listeners.push(listener) };
})();
