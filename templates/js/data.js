// The page's data, unpacked; and the one selection that chart, table, tree and graph share.
"use strict";
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // Texts are given as places in a list of them, numbers that climb as steps from the one before.
  function unpack(column) {
    if (Array.isArray(column)) return column;
    let sum = 0;
    return column.steps ? column.steps.map((step) => (sum += step)) : column.at.map((place) => column.of[place]);
  }
  function rowsOf(columns) {
    const names = Object.keys(columns);
    if (names.length === 0) return [];
    const unpacked = names.map((name) => unpack(columns[name]));
    return unpacked[0].map((_, at) => Object.fromEntries(names.map((name, column) => [name, unpacked[column][at]])));
  }

  const operators = rowsOf(data.operators).map((row, index) => ({ index, ...row }));
  const modules = rowsOf(data.modules).map((row, number) => ({ number, ...row }));
  const groups = data.groups.map(([session, name, type, provider, time, origin, members]) => ({ session, name, type, provider, time, origin, members }));

  const listeners = [];
  let selected = null;
  function select(index, from) {
    selected = index === selected ? null : index;
    listeners.forEach((listener) => listener(selected, from));
  }

  // What an operator and a module are called in links: by name, as another rendering of the record numbers them anew.
  // Of several with one name the second is "name~2".
  function named(texts) {
    const keys = new Map();
    const used = new Map();
    texts.forEach((text, at) => {
      let times = (used.get(text) || 0) + 1;
      const key = () => (times > 1 ? `${text}~${times}` : text);
      while (keys.has(key())) times += 1;
      used.set(text, times);
      keys.set(key(), at);
    });
    return { all: [...keys.keys()], at: (key) => keys.get(key) ?? null };
  }
  const operatorNames = named(operators.map((row) => row.name || row.type));
  const moduleNames = named(modules.map((item) => item.path));

  // The module itself and all above it.
  function ancestry(number) {
    const line = [];
    for (let at = number; at !== null && at !== undefined; at = modules[at].parent) line.push(at);
    return line;
  }

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  return {
    data, unpack, rowsOf, operators, modules, groups, ancestry, element, select, operatorNames, moduleNames,
    selected: () => selected,
    onSelect: (listener) => listeners.push(listener),
  };
})();
