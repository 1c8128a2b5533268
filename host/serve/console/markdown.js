// Markdown of cards as elements: headings, paragraphs, lists, tables, code. Everything else, and all HTML, is text.

import { h } from './dom.js';

const ENTITIES = { '&lt;': '<', '&gt;': '>', '&amp;': '&' };

/** Text with `code` in it; backslashes before punctuation and the entities of `<`, `>` and `&` are undone. */
function inline(text) {
  const plain = (part) => part.replace(/\\([!-/:-@[-`{-~])|&(?:lt|gt|amp);/g, (found, mark) => mark ?? ENTITIES[found]);
  return text.split(/(?<!\\)(`[^`]+`)/).filter(Boolean).map((part) => (part.length > 2 && part.startsWith('`') && part.endsWith('`') ? h('code', {}, part.slice(1, -1)) : plain(part)));
}

/** The cells of a line such as `| a | b |`; an escaped `|` separates nothing. */
function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '').split(/(?<!\\)\|/).map((cell) => cell.trim());
}

const isTable = (lines, at) => lines[at].trim().startsWith('|') && /^[\s|:-]+$/.test(lines[at + 1] ?? '') && lines[at + 1].includes('-');
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s*[-*]\s+(.*)$/;
const FENCE = /^\s*```/;

/** The elements of a text. A heading of level 1 becomes one of level 3: the page and the dialog have titles. */
export function markdown(text) {
  const lines = text.split('\n');
  const found = [];
  let at = 0;
  /** The lines from here on for which `holds`. */
  const take = (holds) => {
    const block = [];
    while (at < lines.length && holds(lines[at])) block.push(lines[at++]);
    return block;
  };
  while (at < lines.length) {
    const heading = HEADING.exec(lines[at]);
    if (heading) {
      found.push(h(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2])));
      at += 1;
    } else if (FENCE.test(lines[at])) {
      at += 1;
      found.push(h('pre', {}, h('code', {}, take((line) => !FENCE.test(line)).join('\n'))));
      at += 1;
    } else if (isTable(lines, at)) {
      const head = cells(lines[at]);
      at += 2;
      const rows = take((line) => line.trim().startsWith('|')).map(cells);
      const row = (tag) => (of) => h('tr', {}, of.map((cell) => h(tag, tag === 'th' ? { scope: 'col' } : {}, inline(cell))));
      found.push(h('div', { class: 'scroll' }, h('table', { class: 'sides' }, h('thead', {}, row('th')(head)), h('tbody', {}, rows.map(row('td'))))));
    } else if (ITEM.test(lines[at])) {
      found.push(h('ul', {}, take((line) => ITEM.test(line)).map((line) => h('li', {}, inline(ITEM.exec(line)[1])))));
    } else if (lines[at].trim() === '') {
      at += 1;
    } else {
      const first = lines[at++];
      const rest = take((line) => line.trim() !== '' && !HEADING.test(line) && !FENCE.test(line) && !ITEM.test(line) && !line.trim().startsWith('|'));
      found.push(h('p', {}, inline([first, ...rest].join(' '))));
    }
  }
  return found;
}
