// A browser for the tests, and what they ask of a page again and again.
//
// SAGGAR_URL is the server, CONSOLE_MODULES the folder with node_modules, CONSOLE_SHOTS one for screenshots, if wanted.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const { chromium } = createRequire(path.join(process.env.CONSOLE_MODULES, '/'))('playwright-core');

export const url = process.env.SAGGAR_URL;

/** What keeps Chromium from asking other hosts for things of its own. */
const QUIET = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

let browser;

export async function start() {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: QUIET });
}

export async function stop() {
  await browser.close();
}

/**
 * Runs `visit(page)` on a page of its own at `#/place`. Whatever the browser complains about fails it, but for what has one
 * of the words `expected`: the browser tells of every request that is refused.
 */
export async function on(place, visit, { expected = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: url });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const complaints = [];
  const complain = (text) => {
    if (!expected.some((words) => text.includes(words))) complaints.push(text);
  };
  page.on('pageerror', (error) => complain(error.stack));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complain(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('blob:')) complaints.push(`asked ${request.url()}`);
  });
  try {
    await page.goto(`${url}/#/${place}`);
    await visit(page);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

/** Keeps a picture of the whole page where pictures are wanted. */
export async function shot(page, name) {
  const folder = process.env.CONSOLE_SHOTS;
  if (folder) await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
}

/** The server's answer to a request past the page. */
export async function api(method, route, body) {
  const response = await fetch(url + route, { method, headers: { 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
  return { status: response.status, json: await response.json() };
}

/** Waits until `read()` gives `expected`. */
export async function becomes(read, expected) {
  const began = Date.now();
  for (;;) {
    const value = await read();
    try {
      assert.deepEqual(value, expected);
      return;
    } catch (error) {
      if (Date.now() - began > 30_000) throw error;
    }
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

/** Nothing is wider than the window, and every control has a name. */
export async function isUsable(page) {
  const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - window.innerWidth);
  assert.ok(wide <= 0, `the page is ${wide} pixels wider than the window`);
  const nameless = await page.evaluate(() => {
    const name = (element) => element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.[0]?.textContent.trim() || '';
    const controls = document.querySelectorAll('a, button, input, select, textarea, [tabindex="0"]');
    return [...controls].filter((element) => !name(element)).map(({ outerHTML }) => outerHTML);
  });
  assert.deepEqual(nameless, []);
}

/** Text can be read on what it stands on: a contrast of 4.5 as WCAG 2.2 has it. */
export async function isReadable(page) {
  const colours = await page.evaluate(() => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    const pairs = ['ink', 'muted', 'accent', 'ready', 'wait', 'bad'].flatMap((text) => ['paper', 'surface'].map((ground) => [text, ground]));
    return [...pairs, ['on-accent', 'accent'], ['accent', 'accent-soft'], ['bad', 'bad-soft'], ['ink', 'sunken']].map((pair) => [pair.join(' on '), ...pair.map(of)]);
  });
  const luminance = (hex) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const [pair, text, ground] of colours) {
    const [light, dark] = [luminance(text), luminance(ground)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    assert.ok(contrast >= 4.5, `${pair}: ${contrast.toFixed(2)}`);
  }
}

/** The forms in which each page is looked at. */
export const looks = {
  light: {},
  dark: { colorScheme: 'dark' },
  narrow: { viewport: { width: 360, height: 740 } },
  'narrow-dark': { viewport: { width: 360, height: 740 }, colorScheme: 'dark' },
};
