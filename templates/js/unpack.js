// Unpacks what the page carries packed, each part in its place and in order: style, data, libraries, our own scripts.
"use strict";
(() => {
  if (!window.DecompressionStream) return;
  const root = document.documentElement;
  root.dataset.scripts = "run";

  async function unpacked(part) {
    const letters = atob(part.textContent);
    const bytes = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
    return new Response(new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"))).text();
  }
  // A library's last line has the browser's tools look for a file that is not here.
  const SOURCE_MAP = /\n?(\/\/|\/\*)[#@] sourceMappingURL=[^\s*]*(\s*\*\/)?\s*$/;
  function put(part, text) {
    const type = part.dataset.gzip;
    const made = document.createElement(type === "text/css" ? "style" : "script");
    Object.assign(made, { type, id: part.id, textContent: type === "application/json" ? text : text.replace(SOURCE_MAP, "\n") });
    part.replaceWith(made);
  }
  function failed() {
    delete root.dataset.scripts;
    const note = document.querySelector(".needs-scripts p");
    if (note) note.textContent = "This copy of the file is damaged: its charts and the sortable table cannot be shown. Ask for it anew; all else is here.";
  }
  addEventListener("DOMContentLoaded", () => {
    const parts = [...document.querySelectorAll("[data-gzip]")];
    const painted = new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, 200); });
    Promise.all([painted, ...parts.map(unpacked)]).then(async ([, ...texts]) => {
      for (const [at, part] of parts.entries()) {
        put(part, texts[at]);
        await new Promise((done) => setTimeout(done));
      }
    }, failed);
  });
})();
