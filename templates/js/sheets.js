// What leaves the page for spreadsheets: rows as CSV or with tabs, as a file or by the clipboard.
"use strict";
const sheets = (() => {
  const { element } = report;

  // Text that a spreadsheet would take for a formula, as `cell` of analyzer/report/csv_table.py has it: a test compares the two.
  const FORMULA = /^ *[=+\-@\uff1d\uff0b\uff0d\uff20]/u;
  // What `printable` of analyzer/text.py writes as a blank: what cannot be seen, and every blank but the usual one.
  const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "boolean") return value ? "True" : "False"; // as Python writes them into the command's own files
    if (typeof value !== "string") return String(value);
    const text = value.replace(UNSEEN, " ");
    return FORMULA.test(text) ? `'${text}` : text;
  }

  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = (rows) => rows.map((row) => row.map((value) => quoted(cell(value))).join(",")).join("\r\n");
  // No cell holds a tab or a line break: nothing is to be quoted.
  const tabbed = (rows) => rows.map((row) => row.map(cell).join("\t")).join("\n");

  // Any file that leaves the page; a sheet unless told otherwise.
  function download(name, content, type = "text/csv") {
    const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Whether the text is on the clipboard now: pages from a plain http server have none but the old way.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const had = document.activeElement;
      const area = element("textarea", { value: text, readOnly: true, className: "visually-hidden" });
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      had?.focus();
      return copied;
    }
  }

  // Commands in running text get the button that those on a line of their own have.
  document.querySelectorAll("main :is(p, dd, li)").forEach((part) => [...part.childNodes].forEach((node) => {
    const found = /`(analyze [^`]+)`/.exec(node.nodeType === Node.TEXT_NODE ? node.data : "");
    if (!found) return;
    const button = element("button", { type: "button", className: "button", textContent: "Copy" });
    button.dataset.copy = found[1];
    node.splitText(found.index + found[0].length).before(" ", button);
  }));
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) button.textContent = (await copy(button.dataset.copy)) ? "Copied" : "Not copied";
  });

  return { cell, csv, tabbed, download, copy };
})();
