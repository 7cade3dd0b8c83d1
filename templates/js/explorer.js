// Starts the table and the tree beside it, and the button that copies the first screen in words.
"use strict";
table.begin();
report.tree.begin();
document.getElementById("copy-summary").addEventListener("click", async () => {
  const copied = await sheets.copy(report.data.brief);
  document.getElementById("summary-copied").textContent = copied ? "Copied." : "This browser does not let the page copy.";
});
