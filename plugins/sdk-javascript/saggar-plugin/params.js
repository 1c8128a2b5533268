/** Parameters of a job, and the configuration of a model version: JSON objects whose unread members are mistakes. */
export class Params {
    constructor(members = {}) {
        this.members = members;
        this.read = new Set();
    }

    static parse(text) {
        return new Params(text.trim() ? JSON.parse(text) : {});
    }

    /** Returns a member, which must exist. */
    get(name) {
        this.read.add(name);
        if (!(name in this.members)) throw new RangeError(`parameter \`${name}\` is missing`);
        return this.members[name];
    }

    /** Returns a parameter, which must have the type of its default. */
    param(name, byDefault) {
        this.read.add(name);
        const value = this.members[name] ?? byDefault;
        const isWhole = !Number.isInteger(byDefault) || Number.isInteger(value);
        if (typeof value !== typeof byDefault || !isWhole) {
            const expected = Number.isInteger(byDefault) ? 'an integer' : `a ${typeof byDefault}`;
            throw new RangeError(`parameter \`${name}\` must be ${expected}, not ${JSON.stringify(value)}`);
        }
        return value;
    }

    /** Returns a number, which can be whole or not. */
    number(name, byDefault) {
        this.read.add(name);
        const value = this.members[name] ?? byDefault;
        if (typeof value !== 'number') {
            throw new RangeError(`parameter \`${name}\` must be a number, not ${JSON.stringify(value)}`);
        }
        return value;
    }

    /** Throws for a member that was not read. */
    check() {
        const unread = Object.keys(this.members).find((name) => !this.read.has(name));
        if (unread === undefined) return;
        throw new RangeError(`unknown parameter \`${unread}\`: this plugin takes ${[...this.read].sort().join(', ')}`);
    }
}
