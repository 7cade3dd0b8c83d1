// Figures for human eyes, by the same rules as the program's own units: three digits, SI prefixes, never 0 for what is not 0.
"use strict";
const figures = (() => {
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const UNKNOWN = "–";

  // Halves to the even number, as the program rounds: the same dollars are the same figure.
  function whole(value) {
    const rounded = Math.round(value);
    return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
  }

  function digits(value, significant = 3) {
    if (value === 0 || !Number.isFinite(value)) return String(value);
    const rounded = Number(value.toExponential(significant - 1)); // 0.9999 is written as 1.00
    const decimals = Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(rounded))));
    const text = value.toFixed(Math.min(decimals, 100));
    return text.includes(".") && decimals > significant ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }

  function withPrefix(value, unit, significant = 3) {
    if (value === 0) return `0 ${unit}`.trimEnd();
    const slack = 1 - 0.5 * 10 ** -significant;
    const [factor, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= size * slack) || PREFIXES.at(-1);
    return `${digits(value / factor, significant)} ${prefix}${unit}`.trimEnd();
  }

  function share(value) {
    if (value > 0 && value < 0.01) return "<1 %";
    if (value > 0.99 && value < 1) return ">99 %";
    return `${whole(value * 100)} %`;
  }

  const KINDS = {
    text: String,
    count: (value) => value.toLocaleString("en-US"),
    number: (value) => digits(value),
    whole: (value) => whole(value).toLocaleString("en-US"),
    seconds: (value) => (value >= 1e3 ? `${whole(value).toLocaleString("en-US")} s` : withPrefix(value, "s")),
    joules: (value) => withPrefix(value, "J"),
    bytes: (value) => withPrefix(value, "B"),
    flops: (value) => withPrefix(value, "FLOP"),
    rate: (value) => withPrefix(value, "FLOP/s"),
    per_second: (value) => (value > 0 && value < 1 ? `${digits(value)} /s` : withPrefix(value, "/s")),
    share,
    percent: (value) => (value >= 0.1 ? share(value) : `${digits(value * 100, 2)} %`),
    dollars: (value) => (value >= 1e3 ? `$${whole(value).toLocaleString("en-US")}` : `$${digits(value)}`),
    factor: (value) => `${digits(value, value < 10 ? 2 : 3)}x`,
  };

  function figure(value, kind) {
    if (value === null || value === undefined || value === "") return UNKNOWN;
    return (KINDS[kind] || String)(value);
  }

  return { figure, UNKNOWN };
})();
