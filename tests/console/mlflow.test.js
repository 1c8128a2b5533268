// MLflow's own pages, served by the server: experiments, runs, charts and artefacts of jobs.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

/** What MLflow's pages ask for and this server does not have: they go on without it. */
const EXPECTED = ['404', 'Failed to load resource', 'Apollo', 'MLflow', 'Warning:', 'WebGL', 'deprecated', 'ResizeObserver'];

const post = async (path, body) => {
  const answer = await fetch(`${url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  assert.equal(answer.status, 200);
  return answer.json();
};
const experiment = async () => {
  const { experiments } = await post('/api/2.0/mlflow/experiments/search', {});
  return experiments.find(({ name }) => name === 'digits').experiment_id;
};

const visit = (place, look) => on('', async (page) => {
  await page.goto(`${url}/mlflow/#/${place}`);
  await look(page);
}, { expected: EXPECTED });

test('the experiments are the projects', () => visit('experiments', async (page) => {
  await page.getByRole('link', { name: 'digits', exact: true }).waitFor();
  await shot(page, 'mlflow-experiments');
}));

test('an experiment lists its jobs, and charts their series', async () => {
  await visit(`experiments/${await experiment()}/runs`, async (page) => {
    await page.getByText('digits-1', { exact: true }).first().waitFor();
    await page.getByText('digits-2', { exact: true }).first().waitFor();
    await shot(page, 'mlflow-runs');
  });
  await visit(`experiments/${await experiment()}/runs?compareRunsMode=CHART`, async (page) => {
    await page.getByText('digits-1 (epoch/loss)').first().waitFor();
    await shot(page, 'mlflow-charts');
  });
});

test('a run shows its parameters, its metrics and its artefacts', async () => {
  await visit(`experiments/${await experiment()}/runs/digits-1`, async (page) => {
    await page.getByText('epochs', { exact: true }).first().waitFor();
    await page.getByText('epoch/accuracy').first().waitFor();
    await shot(page, 'mlflow-run');
  });
  await visit(`experiments/${await experiment()}/runs/digits-1/model-metrics`, async (page) => {
    await page.locator('.js-plotly-plot').first().waitFor();
    await shot(page, 'mlflow-metrics');
  });
  await visit(`experiments/${await experiment()}/runs/digits-1/artifacts`, async (page) => {
    await page.getByText('confusion.csv').first().click();
    await shot(page, 'mlflow-artefacts');
  });
});

test('an image that a job logged is an artefact', async () => {
  const { experiments } = await post('/api/2.0/mlflow/experiments/search', {});
  const job = process.env.LOGGED_JOB;
  const { experiment_id: id } = experiments.find(({ name }) => name === job.replace(/-\d+$/, ''));
  await visit(`experiments/${id}/runs/${job}/artifacts/logged/pictures/gradient/00000003.png`, async (page) => {
    // MLflow draws a picture of this size from the file itself.
    await becomes(() => page.locator('img').evaluateAll((images) => images.some(({ naturalWidth }) => naturalWidth === 16)), true);
    await shot(page, 'mlflow-logged');
  });
});

test('a run that does not exist is said to be missing', async () => {
  await visit(`experiments/${await experiment()}/runs/absent-1`, async (page) => {
    await page.getByText('absent-1').first().waitFor();
    await shot(page, 'mlflow-missing');
  });
});
