// A drawing of the page saved as a file of its own: light, with its title, its words and whence its figures are.
"use strict";
const pictures = (() => {
  const { data, element } = report;
  const MARGIN = 20;
  const SCALE = 2;

  // The style sheet's first rule, whatever the reader sees: a saved picture is put on paper.
  const light = (() => {
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
    const { style } = rules.find((rule) => rule.selectorText === ":root");
    return (name) => style.getPropertyValue(name).trim();
  })();

  // A drawing names its colours as variables; one that a canvas showed has their values of that moment.
  function inLight(svg) {
    const now = getComputedStyle(document.documentElement);
    const names = [...new Set(svg.match(/var\(--[\w-]+\)/g))].map((text) => [text, light(text.slice(4, -1))]);
    const values = names.length ? [] : ["--surface", "--text", "--muted", "--line", "--cpu", "--gpu", "--hybrid", "--copy", "--bad", ...Array.from({ length: 8 }, (_, at) => `--record-${at + 1}`)]
      .map((name) => [`"${now.getPropertyValue(name).trim()}"`, `"${light(name)}"`]);
    return [...names, ...values].reduce((text, [from, to]) => text.replaceAll(from, to), svg);
  }

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

  function wrapped(text, font, width) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = font;
    const lines = [];
    text.split(" ").forEach((word) => {
      const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
      if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
      else lines.push(word);
    });
    return lines;
  }

  // Title and subject, the drawing, and the footer below each other on white.
  function sheet(drawing, { title, words, subject, footer }) {
    const { width: across, height: down } = new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement.attributes;
    const [inner, tall] = [Math.max(Number(across.value), 320), Number(down.value)];
    const family = data.style.font;
    let top = MARGIN;
    const block = (text, size, weight, colour) => wrapped(text, `${weight} ${size}px ${family}`, inner).map((line) => {
      top += size * 1.35;
      return `<text x="${MARGIN}" y="${top.toFixed(1)}" font-family="${escaped(family)}" font-size="${size}px" font-weight="${weight}" fill="${light(colour)}">${escaped(line)}</text>`;
    }).join("");
    const head = block(title, 17, 600, "--text") + (subject ? block(subject, 12, 400, "--muted") : "");
    const at = top + 14;
    top = at + tall + 8;
    const foot = footer ? block(footer, 12, 400, "--muted") : "";
    const [width, height] = [inner + 2 * MARGIN, top + MARGIN].map(Math.ceil);
    return `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="${escaped(title)}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
      + `<title>${escaped(title)}</title><desc>${escaped(words)}</desc><rect width="100%" height="100%" fill="${light("--surface")}"/>`
      + `${head}${inLight(drawing).replace("<svg ", `<svg x="${MARGIN}" y="${at.toFixed(1)}" `)}${foot}</svg>`;
  }

  async function png(svg) {
    const image = new Image();
    // As data and not as an object's address: a canvas stays readable in every browser.
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = element("canvas", { width: image.width * SCALE, height: image.height * SCALE });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  // A menu for the tools of a drawing. `drawn()` promises its SVG, `said()` is its caption; `csv()` its data, if it has any.
  function menu(tools, { title, name, drawn, said, csv }) {
    tools.querySelector(".save")?.remove();
    const file = `${data.name}-${name}`;
    const picture = async () => sheet(await drawn(), { title, ...said() });
    const ways = [
      ["SVG", async () => sheets.download(`${file}.svg`, await picture(), "image/svg+xml")],
      ["PNG", async () => sheets.download(`${file}.png`, await png(await picture()), "image/png")],
      ...(csv ? [["CSV", async () => sheets.download(`${file}.csv`, csv())]] : []),
    ];
    const summary = element("summary", { className: "button", textContent: "Save" });
    summary.setAttribute("aria-label", `Save “${title}”`);
    const buttons = ways.map(([label, save]) => {
      const button = element("button", { type: "button", className: "button", textContent: label });
      button.setAttribute("aria-label", `${label}: save “${title}”`);
      button.addEventListener("click", save);
      return button;
    });
    const details = element("details", { className: "save" }, summary, ...buttons);
    details.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !details.open) return;
      details.open = false;
      summary.focus();
    });
    tools.append(details);
  }

  return { menu };
})();
