// Starts the table and the tree beside it.
"use strict";
table.begin();
report.tree.begin();
