// Where things come from and what became of them: data, the job that read it, the version that it published, and the answers
// of that version that were recorded as data again.

import { h } from './dom.js';

/** The name of the dataset to which predictions of a model are recorded begins with this. */
const RECORDED = 'recorded-';
/** Things of one kind that are named. */
const SHOWN_MAX = 6;

const place = (kind, name) => `#/${kind}/${encodeURIComponent(name)}`;
const datasetLink = (text) => ({ label: text, href: place('datasets', text.split('/')[0]) });
const jobLink = (name) => ({ label: name, href: place('jobs', name) });

/** What a version of a model is now: `default, 60 % of the traffic`, `READY` or that it is gone. */
export function standing(model, number) {
  const version = model?.versions.find((one) => one.version === number);
  if (!version) return model ? 'removed' : '';
  const parts = [
    model.serving === number && 'default',
    version.traffic_percent > 0 && version.traffic_percent < 100 && `${version.traffic_percent} % of the traffic`,
    ...(version.aliases ?? []).filter((alias) => alias !== 'stable'),
  ].filter(Boolean);
  return parts.join(', ') || version.state.toLowerCase();
}

function versionLink(models, { model: name, version: number }) {
  const model = models.find((one) => one.name === name);
  return { label: `${name}@${number}`, href: place('models', name), note: standing(model, number), serves: model?.serving === number };
}

/** The datasets of recorded answers of these models: their newest versions. */
function recordedOf(datasets, names) {
  const newest = new Map();
  for (const { name, version } of datasets) newest.set(name, Math.max(version, newest.get(name) ?? 0));
  return [...new Set(names)].map((name) => `${RECORDED}${name}`).filter((name) => newest.has(name)).map((name) => ({ ...datasetLink(`${name}/${newest.get(name)}`), note: 'recorded answers' }));
}

/** What a specification reads: mounts, and the weights that it begins from. */
function sourcesOf(spec = {}) {
  const mount = ({ dataset, version, job, path }) => (job ? { ...jobLink(job), note: path ? `output ${path}` : 'output' } : datasetLink(version ? `${dataset}/${version}` : dataset));
  const [, kind, name] = /^(job|model):([^/@]+)/.exec(spec.init_from ?? '') ?? [];
  const origin = kind && { label: spec.init_from.replace(/^(job|model):/, ''), href: place(`${kind}s`, name), note: 'initial weights' };
  return [...(spec.data ?? []).map(mount), origin].filter(Boolean);
}

/** The lineage of a job: `{ data, jobs, versions, answers }` for `lineageRow`. */
export function lineageOfJob(job, { models, datasets }) {
  const published = job.published ?? [];
  return {
    data: sourcesOf(job.spec),
    jobs: [{ label: job.name, here: true }],
    versions: published.map((one) => versionLink(models, one)),
    answers: recordedOf(datasets, published.map(({ model }) => model)),
  };
}

/** The lineage of the versions of a dataset. */
export function lineageOfDataset(name, versions, { models, datasets }) {
  const jobs = [...new Set(versions.flatMap(({ used_by: active = [], was_used_by: finished = [] }) => [...active, ...finished]))];
  const made = models.flatMap((model) => model.versions.filter(({ source_job: job }) => jobs.includes(job)).map(({ version }) => ({ model: model.name, version })));
  const recorded = name.startsWith(RECORDED) ? name.slice(RECORDED.length) : null;
  const source = models.find((model) => model.name === recorded);
  return {
    origin: source ? [{ label: source.name, href: place('models', source.name), note: 'answers of this model' }] : [],
    data: [{ label: name, here: true }],
    jobs: jobs.map(jobLink),
    versions: made.sort((a, b) => b.version - a.version).map((one) => versionLink(models, one)),
    answers: recordedOf(datasets, made.map(({ model }) => model)),
  };
}

/** The lineage of a version: `detail` is the answer about it. */
export function lineageOfVersion({ model, version, provenance, origin }, { models, datasets }) {
  const of = [origin?.trial?.sweep && { label: origin.trial.sweep, href: place('sweeps', origin.trial.sweep), note: 'sweep' }, origin?.step?.run && { label: origin.step.run, href: place('pipelines', origin.step.run), note: 'pipeline run' }];
  return {
    data: Object.values(provenance?.data ?? {}).map((text) => (text.startsWith('job:') ? jobLink(text.slice(4).split('/')[0]) : datasetLink(text))),
    jobs: [version?.source_job && jobLink(version.source_job), ...of].filter(Boolean),
    versions: [{ ...versionLink(models, { model, version: version?.version }), here: true }],
    answers: recordedOf(datasets, [model]),
  };
}

const STAGES = [['origin', 'Made from'], ['data', 'Data'], ['jobs', 'Jobs'], ['versions', 'Versions'], ['answers', 'Recorded answers']];

/** The stages as a row: what is not known is left out, but for `none` of each stage. */
export function lineageRow(found, label) {
  const chip = ({ label: text, href, note, here, serves }) => h(
    'li',
    { class: serves ? 'chip serves' : 'chip' },
    here || !href ? h('b', { 'aria-current': here ? 'true' : null }, text) : h('a', { href }, text),
    note && h('span', { class: 'note' }, ` ${note}`),
  );
  const stage = ([key, title]) => {
    const all = found[key] ?? [];
    const rest = all.length - SHOWN_MAX;
    return all.length > 0 && h('li', { class: 'stage', 'data-key': key }, h('h3', {}, title), h('ul', {}, all.slice(0, SHOWN_MAX).map(chip), rest > 0 && h('li', { class: 'note' }, `and ${rest} more`)));
  };
  return h('ol', { class: 'lineage', 'aria-label': label }, STAGES.map(stage));
}

/** Whether there is more than the thing itself. */
export function hasLineage(found) {
  return Object.values(found).flat().some(({ here }) => !here);
}
