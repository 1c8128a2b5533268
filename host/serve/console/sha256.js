// SHA-256 of data that comes in pieces. The browser's own digest needs all data at once, and is only for pages of secure
// origins. Source: FIPS 180-4, section 6.2.

/** The first 32 bits of the fractional parts of the square roots, and of the cube roots, of the first primes. */
const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
const PRIMES = [2];
for (let candidate = 3; PRIMES.length < 64; candidate += 2) if (PRIMES.every((prime) => candidate % prime)) PRIMES.push(candidate);
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const BLOCK = 64;

/** A digest of what `update(bytes)` is given, piece by piece; `hex()` ends it. */
export class Sha256 {
  #state = Int32Array.from(START);
  #rest = new Uint8Array(BLOCK);
  #filled = 0;
  #length = 0;
  #words = new Int32Array(BLOCK);

  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(BLOCK - this.#filled, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < BLOCK) return this;
      this.#block(this.#rest, 0);
      this.#filled = 0;
    }
    for (; at + BLOCK <= bytes.length; at += BLOCK) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#filled = bytes.length - at;
    return this;
  }

  hex() {
    const length = this.#length;
    const end = new Uint8Array((this.#filled < BLOCK - 8 ? BLOCK : 2 * BLOCK) - this.#filled);
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(end.length - 4, (length * 8) >>> 0);
    this.update(end);
    return [...this.#state].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
  }

  #block(bytes, start) {
    const w = this.#words;
    for (let t = 0, at = start; t < 16; t += 1, at += 4) w[t] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    for (let t = 16; t < 64; t += 1) {
      const [x, y] = [w[t - 15], w[t - 2]];
      const small0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const small1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[t] = (w[t - 16] + small0 + w[t - 7] + small1) | 0;
    }
    const state = this.#state;
    let [a, b, c, d, e, f, g, i] = state;
    for (let t = 0; t < 64; t += 1) {
      const big1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (i + big1 + ((e & f) ^ (~e & g)) + ROUNDS[t] + w[t]) | 0;
      const big0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      i = g;
      g = f;
      f = e;
      e = (d + one) | 0;
      d = c;
      c = b;
      b = a;
      a = (one + two) | 0;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += i;
  }
}
