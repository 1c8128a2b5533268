// Makes a component of a module: node build.mjs MODULE WIT WORLD OUTPUT
import { writeFileSync } from 'node:fs';
import { componentize } from '@bytecodealliance/componentize-js';

const [sourcePath, witPath, worldName, output] = process.argv.slice(2);
try {
    // Plugins have no HTTP; everything else of WASI is there, with nothing behind it.
    const disableFeatures = ['http', 'fetch-event'];
    const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures });
    writeFileSync(output, component);
} catch (error) {
    console.error(error.message);
    process.exit(1);
}
