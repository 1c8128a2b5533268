// The pad on which a picture is drawn or dropped.

import { h } from './dom.js';

/** Pictures up to this side can be drawn. */
const DRAWN_SIDE_MAX = 64;
/** The finer canvas that is drawn on has at least this side. */
const INK_SIDE = 320;

/** A canvas of the model's resolution over a finer one that takes the ink. */
export class Pad {
  constructor({ height, width, channels }, changed) {
    this.height = height;
    this.width = width;
    this.grey = channels === 1;
    this.changed = changed;
    this.colour = '#ffffff';
    this.draws = Math.max(height, width) <= DRAWN_SIDE_MAX;
    this.fine = this.draws ? Math.ceil(INK_SIDE / Math.max(height, width)) : 1;
    this.view = h('canvas', { width, height });
    this.cursor = h('i', { class: 'pad-cursor', hidden: true });
    this.words = h('p', { class: 'pad-words' });
    this.element = h('div', {
      class: 'pad', tabindex: 0, role: 'application', 'data-own-keys': '', style: { '--ratio': `${width} / ${height}` },
      'aria-label': this.draws
        ? `Drawing pad, ${width} by ${height} pixels. Arrow keys move, Space paints, Delete clears.`
        : `Picture, ${width} by ${height} pixels. Drop or paste one here.`,
    }, this.view, this.cursor, this.words);
    this.ink = h('canvas', { width: width * this.fine, height: height * this.fine });
    this.context = this.ink.getContext('2d', { willReadFrequently: true });
    this.clear();
    if (this.draws) this.listen();
  }

  clear() {
    this.context.fillStyle = '#000000';
    this.context.fillRect(0, 0, this.ink.width, this.ink.height);
    this.file = null;
    this.empty = true;
    this.say(this.draws ? 'Draw' : 'Drop a picture');
    this.show();
  }

  say(text) {
    this.words.textContent = text;
  }

  invert() {
    this.context.save();
    this.context.globalCompositeOperation = 'difference';
    this.context.fillStyle = '#ffffff';
    this.context.fillRect(0, 0, this.ink.width, this.ink.height);
    this.context.restore();
    this.touched();
  }

  touched() {
    this.file = null;
    this.empty = false;
    this.say('');
    this.show();
  }

  /** Takes a picture's file; a PNG or JPEG goes to the server as it is. */
  async take(blob) {
    const picture = await createImageBitmap(blob);
    const small = await createImageBitmap(blob, { resizeWidth: this.width, resizeHeight: this.height, resizeQuality: 'high' });
    this.context.fillStyle = '#000000';
    this.context.fillRect(0, 0, this.ink.width, this.ink.height);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, 0, 0, this.ink.width, this.ink.height);
    this.touched();
    this.file = ['image/png', 'image/jpeg'].includes(blob.type) ? blob : await encoded(picture);
  }

  /** RGBA of each pixel that the model sees: the mean of its ink. */
  pixels() {
    const { width, height, fine } = this;
    const from = this.context.getImageData(0, 0, this.ink.width, this.ink.height).data;
    const pixels = new Uint8ClampedArray(width * height * 4);
    for (let at = 0; at < width * height; at += 1) {
      const sums = [0, 0, 0];
      for (let cell = 0; cell < fine * fine; cell += 1) {
        const row = Math.floor(at / width) * fine + Math.floor(cell / fine);
        const column = (at % width) * fine + (cell % fine);
        const source = (row * this.ink.width + column) * 4;
        for (let channel = 0; channel < 3; channel += 1) sums[channel] += from[source + channel];
      }
      const mean = sums.map((sum) => sum / (fine * fine));
      // Weights of ITU-R BT.601, as the server takes them.
      const grey = 0.299 * mean[0] + 0.587 * mean[1] + 0.114 * mean[2];
      pixels.set([...(this.grey ? [grey, grey, grey] : mean), 255], at * 4);
    }
    return pixels;
  }

  show() {
    this.view.getContext('2d').putImageData(new ImageData(this.pixels(), this.width, this.height), 0, 0);
  }

  /** The picture as a file: the one that was given, or a PNG of what was drawn in the model's resolution. */
  async png() {
    return this.file ?? new Promise((resolve) => { this.view.toBlob(resolve, 'image/png'); });
  }

  stroke(from, to) {
    const { context } = this;
    context.strokeStyle = this.colour;
    context.lineCap = 'round';
    context.lineWidth = Math.max(1.7, Math.min(this.height, this.width) * 0.08) * this.fine;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
    this.touched();
  }

  listen() {
    const { element, view } = this;
    let last = null;
    const place = (event) => {
      const box = view.getBoundingClientRect();
      return {
        x: ((event.clientX - box.left) / box.width) * this.ink.width,
        y: ((event.clientY - box.top) / box.height) * this.ink.height,
      };
    };
    element.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      last = place(event);
      this.stroke(last, last);
    });
    element.addEventListener('pointermove', (event) => {
      if (!last) return;
      const at = place(event);
      this.stroke(last, at);
      last = at;
    });
    for (const type of ['pointerup', 'pointercancel']) {
      element.addEventListener(type, () => {
        if (last) this.changed(true);
        last = null;
      });
    }
    this.listenToKeys();
  }

  listenToKeys() {
    const cell = { column: Math.floor(this.width / 2), row: Math.floor(this.height / 2) };
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const within = (value, length) => Math.min(length - 1, Math.max(0, value));
    const showCursor = () => {
      this.cursor.hidden = false;
      this.cursor.style.left = `${(cell.column / this.width) * 100}%`;
      this.cursor.style.top = `${(cell.row / this.height) * 100}%`;
      this.cursor.style.width = `${100 / this.width}%`;
      this.cursor.style.height = `${100 / this.height}%`;
    };
    this.element.addEventListener('blur', () => { this.cursor.hidden = true; });
    this.element.addEventListener('keydown', (event) => {
      const move = moves[event.key];
      if (move) {
        cell.column = within(cell.column + move[0], this.width);
        cell.row = within(cell.row + move[1], this.height);
        showCursor();
      } else if (event.key === ' ') {
        const at = { x: (cell.column + 0.5) * this.fine, y: (cell.row + 0.5) * this.fine };
        this.stroke(at, at);
        this.changed(true);
        showCursor();
      } else if (event.key === 'Delete' || event.key === 'Backspace') {
        this.clear();
        this.changed(false);
      } else {
        return;
      }
      event.preventDefault();
    });
  }
}

/** A picture of another format as a PNG. */
function encoded(picture) {
  const canvas = h('canvas', { width: picture.width, height: picture.height });
  canvas.getContext('2d').drawImage(picture, 0, 0);
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
}
