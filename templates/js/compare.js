// Draws the charts of a comparison.
"use strict";
charts.begin();
