/** Images, tables and histograms that a training logs by step. */

import { Tensor, unpack } from './tensor.js';
import { Variable } from './variables.js';

/** The number of bins that the host accepts at most. */
const BINS_MAX = 512;

/** The number of values in each of a series of bins. `edges` are rising, one more than there are `counts`. */
export class Histogram {
    constructor(edges, counts) {
        Object.assign(this, { edges, counts });
    }

    /**
     * Counts numbers, or the elements of a tensor or a variable, in bins of equal width from the lowest to the highest
     * value. Values that are not finite are left out. If all values are equal, they are in the middle of the histogram, and
     * without values it is empty.
     */
    static of(values, bins = 64) {
        const numbers = Array.from(numbersOf(values)).filter(Number.isFinite);
        const [low, high] = rangeOf(numbers);
        const count = Math.min(Math.max(Math.trunc(bins), 1), BINS_MAX);
        const counts = Array(count).fill(0);
        for (const number of numbers) {
            counts[Math.min(Math.trunc(((number - low) / (high - low)) * count), count - 1)] += 1;
        }
        return new Histogram(Array.from({ length: count + 1 }, (_, edge) => low + (high - low) * (edge / count)), counts);
    }
}

function numbersOf(values) {
    if (values instanceof Tensor) return values.toArray();
    if (values instanceof Variable) return unpack(values.descriptor.dataType, values.read());
    return values;
}

/** Returns the range of a histogram of these numbers, which is never empty. */
function rangeOf(numbers) {
    const low = numbers.reduce((least, number) => Math.min(least, number), Infinity);
    const high = numbers.reduce((greatest, number) => Math.max(greatest, number), -Infinity);
    if (low < high) return [low, high];
    const middle = Number.isFinite(low) ? low : 0.5;
    // Wide enough that the edges of 512 bins differ.
    const half = Math.max(Math.abs(middle) * 1e-6, 0.5);
    return [middle - half, middle + half];
}

/** Returns the values of a column with the type that all of them have: numbers, `bigint`, texts or truth values. */
export function columnValues(values) {
    const all = (type) => values.every((value) => typeof value === type);
    if (all('boolean')) return { tag: 'booleans', val: values };
    if (all('string')) return { tag: 'texts', val: values };
    if (all('bigint')) return { tag: 'integers', val: values };
    if (values.every(Number.isSafeInteger)) return { tag: 'integers', val: values.map(BigInt) };
    return { tag: 'numbers', val: values.map(Number) };
}
