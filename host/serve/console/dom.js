// Elements, and bringing what is shown up to date without losing focus, scroll position or what is being typed.

/** An element with attributes and children. `null`, `undefined` and `false` are left out; `style` is an object. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'style') {
      // Through the object model: the page's policy forbids style attributes.
      for (const [property, of] of Object.entries(value)) element.style.setProperty(property, of);
    } else {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/**
 * Makes the children of `parent` equal to `nodes`. Elements that stay keep their identity: those with `data-key` follow
 * their key, others their place.
 */
export function patch(parent, ...nodes) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (keyOf(child)) keyed.set(keyOf(child), child);
  }
  let at = parent.firstChild;
  for (const node of present(nodes)) {
    const next = typeof node === 'string' || typeof node === 'number' ? document.createTextNode(node) : node;
    const stays = keyOf(next) ? keyed.get(keyOf(next)) : at && !keyOf(at) && at;
    if (!stays || !alike(stays, next)) {
      parent.insertBefore(next, at);
      continue;
    }
    if (stays === at) at = at.nextSibling;
    else move(parent, stays, at);
    update(stays, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

/** An element that is moved would lose the focus. */
function move(parent, node, at) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(node, at);
  focused?.focus({ preventScroll: true });
}

function keyOf(node) {
  return node.dataset?.key;
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.type === b.type;
}

function update(old, next) {
  if (old === next) return;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's choice.
    const own = name === 'open' && old.nodeName === 'DETAILS';
    if (!next.hasAttribute(name) && !own && name !== 'style') old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  patch(old, ...next.childNodes);
  if ('value' in old && old.nodeName !== 'BUTTON' && old !== document.activeElement && old.value !== next.value) {
    old.value = next.value;
  }
  if (old.type === 'checkbox' && old.checked !== next.checked) old.checked = next.checked;
}

/** Calls `actions[name](element, event)` for events of `type` on what has `data-TYPE="name"`, now or later. */
export function listen(root, type, actions) {
  const attribute = `data-${type}`;
  root.addEventListener(type, (event) => {
    const element = event.target.closest?.(`[${attribute}]`);
    if (element && root.contains(element) && !element.disabled) actions[element.getAttribute(attribute)]?.(element, event);
  });
}

/** What is `by` places from `current` in `list`, at most its first or last; the first where `current` is not in it. */
export function neighbour(list, current, by) {
  const at = list.indexOf(current);
  return list[Math.min(list.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
}
