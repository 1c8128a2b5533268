// The card of a model's version: what it was made from, for people.

import { ask, modelPath } from './api.js';
import { note, open } from './dialogs.js';
import { h } from './dom.js';
import { lineageOfVersion, lineageRow } from './lineage.js';
import { markdown } from './markdown.js';

/** Links to the job, the sweep and the pipeline run that a version came from. */
export function originLinks({ version, origin }) {
  const link = (title, place, name) => name && [title, h('a', { href: `#/${place}/${encodeURIComponent(name)}` }, name)];
  const links = [
    link('Job ', 'jobs', version?.source_job),
    link('Pipeline run ', 'pipelines', origin?.step?.run),
    link('Sweep ', 'sweeps', origin?.trial?.sweep),
  ].filter(Boolean);
  return links.flatMap((one, at) => (at ? [' · ', ...one] : one));
}

/** The model, and the datasets as far as the key may see them. */
async function relatedTo(model) {
  const models = [await ask('GET', modelPath(model))];
  try {
    return { models, datasets: (await ask('GET', '/api/v1/datasets')).datasets ?? [] };
  } catch {
    return { models, datasets: [] };
  }
}

/** Shows the card of `version` of `model` in a dialog. */
export async function showCard(model, version) {
  let detail;
  let related;
  try {
    detail = await ask('GET', modelPath(model, 'versions', version));
    related = await relatedTo(model);
  } catch (error) {
    note(error.message, error);
    return;
  }
  const text = detail.card ?? '';
  const links = originLinks(detail);
  await open({
    title: `Card of ${model}@${version}`,
    body: [
      h(
        'p',
        { class: 'note' },
        detail.is_card_generated ? 'Made from the records of its training. ' : text ? 'Written by its publisher. ' : '', links,
      ),
      lineageRow(lineageOfVersion(detail, related), `Lineage of ${model}@${version}`),
      text ? h('div', { class: 'model-card', tabindex: 0, 'aria-label': 'Card' }, markdown(text)) : h('p', {}, 'It has no card, and nothing is known about its training.'),
    ],
    read: () => true,
    wide: true,
  });
}
