// Elements are made here and nowhere else: text is always text, so nothing from the cluster can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, listeners (`onclick`), attributes (`aria-label`) and children (elements or text). */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && !name.includes("-") && element.namespaceURI !== SVG) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces the children; those that are the same stay, so that focus does. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text only if it is another one. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = String(text);
}

/** A table with a caption for screen readers. `columns`: [title, class]. */
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, style]) => h("th", { scope: "col", class: style }, title)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h("td", { class: columns[i][1] }, cell)))))));
}

/** Rows of a text, a number and a bar: [text, shown, share, title]. */
export function bars(rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("ul", { class: "bars" }, rows.map(([text, shown, share]) => {
    const filling = h("i");
    filling.style.width = `${Math.min(100, 100 * share)}%`;
    return h("li", {}, h("span", { class: "text" }, text), h("span", { class: "number" }, shown),
      h("span", { class: "bar", "aria-hidden": "true" }, filling));
  }));
}

let options = 0;

/** A labelled select. `choices`: [value, text]. */
export function choice(title, choices, chosen, onchange) {
  const select = h("select", { id: `choice-${++options}`, onchange: () => onchange(select.value) });
  const set = (wanted, value) => {
    const before = JSON.stringify([...select.options].map((each) => [each.value, each.text]));
    if (before !== JSON.stringify(wanted)) put(select, wanted.map(([key, text]) => h("option", { value: key }, text)));
    select.value = value;
  };
  set(choices, chosen);
  return { element: h("label", { htmlFor: select.id }, title, select), set, select };
}
