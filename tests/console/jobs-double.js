// Jobs as the server describes them, for what a real one does too seldom or too slowly: many jobs, preempted attempts,
// streams that break off. The interface is that of `/openapi.json`.

/** A job in this state; `more` replaces what is said of it. */
export function job(number, more = {}) {
  const id = `01M${String(number).padStart(23, '0')}`;
  return {
    id, name: `mnist-${number}`, project: 'mnist', experiment: null, task: 'train', state: 'SUCCEEDED', reason: '', message: '', description: null,
    position: null, attempt: 1, attempts_max: 6, step: 100, steps_target: 100, created_ms: 1_790_000_000_000 + number * 1000,
    started_ms: 1_790_000_001_000, finished_ms: null, wall_seconds: 20, steps_per_second: 1.55, gpu_seconds: 12.5, device: 'cpu', metrics: { loss: 0.25 },
    queue: 'default', priority: 50, preemptible: false, owner: null, pool: 'cpu',
    spec: { project: 'mnist', plugin: 'ab'.repeat(32), parameters: { epochs: 5, rate: 0.1 }, seed: number, device: 'auto', retry: 5, data: [{ dataset: 'digits', version: 1, mount: '/data' }] },
    ...more,
  };
}

/** An attempt that ended so. */
export function attempt(number, more = {}) {
  return {
    number, state: 'SUCCEEDED', reason: '', message: '', device: 'cpu', started_ms: 1_790_000_000_000, ended_ms: 1_790_000_010_000,
    first_step: 0, last_step: 100, wall_seconds: 10, gpu_seconds: 6, peak_bytes: 1024, samples: 100, ...more,
  };
}

/** A server-sent event. */
export function event(name, data, id) {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The events of a stream that begins with these jobs. */
export function opening(jobs, cursor = null) {
  return jobs.map((one) => event('job', one)).join('') + event('ready', { jobs: jobs.length, cursor });
}

/**
 * Answers for a server with these jobs. `server` can be changed at any time: `{ jobs, details, series, log, streams }`, where
 * `streams` is false for one without events; a deletion is answered after the promise `deletes`, if there is one, and what is
 * asked of the part `failing` of a job with an error; `refuses` does so with changes of tags and notes. Of a series `pointsMax` points are answered at once. What was asked of
 * it is in `server.asked`, as `{ method, path, body, headers }`.
 */
export async function serve(page, server) {
  server.asked = [];
  const stream = (route, body) => route.fulfill({ status: 200, contentType: 'text/event-stream', body });
  const json = (route, value, status = 200) => route.fulfill({ status, json: value });
  await page.route('**/api/v1/**', async (route, request) => {
    const { pathname, search, searchParams } = new URL(request.url());
    const method = request.method();
    server.asked.push({ method, path: pathname + search, body: request.postDataJSON(), headers: request.headers() });
    const [, , , kind, name, ...rest] = pathname.split('/').map(decodeURIComponent);
    const found = [...server.jobs, ...(server.older ?? [])].find((one) => one.name === name);
    if (kind === 'events') {
      if (server.streams === false) return route.abort();
      const wanted = searchParams.get('job');
      const jobs = server.jobs.filter((one) => wanted === null || one.name === wanted);
      return stream(route, opening(jobs, server.cursor ?? null) + (server.more ?? ''));
    }
    if (kind === 'compare') {
      const names = searchParams.get('names').split(',');
      const jobs = names.map((wanted) => [...server.jobs, ...(server.older ?? [])].find((one) => one.name === wanted));
      const missing = names[jobs.indexOf(undefined)];
      if (server.comparison) await server.comparison;
      if (missing) return json(route, { error: `no job, pipeline run or sweep ${missing}`, code: 'not_found', hint: '', request_id: 'r' }, 404);
      return json(route, { kind: 'job', jobs });
    }
    if (kind !== 'jobs') return json(route, server.others?.[kind] ?? {});
    if (!name) {
      const before = searchParams.get('cursor');
      return json(route, before ? { jobs: server.older, cursor: null } : { jobs: server.jobs, cursor: server.cursor ?? null });
    }
    if (!found) return json(route, { error: `no job ${name}`, code: 'not_found', hint: '', request_id: 'r' }, 404);
    if (method === 'DELETE') {
      server.jobs = server.jobs.filter((one) => one !== found);
      server.older = server.older?.filter((one) => one !== found);
      if (server.deletes) await server.deletes;
      return json(route, { freed_bytes: 2048 });
    }
    if (rest[0] === 'annotate') {
      if (server.refuses) return json(route, { error: 'there are too many tags', code: 'invalid', hint: 'remove one', request_id: 'r' }, 400);
      const { tags = {}, remove = [], note } = request.postDataJSON();
      const left = Object.entries({ ...found.tags, ...tags }).filter(([tag]) => !remove.includes(tag));
      Object.assign(found, { tags: Object.fromEntries(left), note: note ?? found.note ?? '' });
      return json(route, { ...found, attempts: [] });
    }
    if (method === 'POST') return json(route, server.answer ?? found, rest[0] === 'restart' ? 201 : 200);
    const [part] = rest;
    if (part && part === server.failing) return json(route, { error: 'too much to do', code: 'busy', hint: '', request_id: 'r' }, 503);
    if (part === 'logs') {
      const wanted = searchParams.get('attempt');
      const lines = (server.log ?? []).filter(([id]) => !wanted || id.startsWith(`${wanted}:`));
      if (!request.headers().accept.includes('event-stream')) return route.fulfill({ contentType: 'text/plain', body: lines.map(([, text]) => `${text}\n`).join('') });
      const from = request.headers()['last-event-id'];
      const at = from ? lines.findIndex(([id]) => id === from) + 1 : 0;
      const text = lines.slice(at).map(([id, line]) => `id: ${id}\nevent: line\ndata: ${line}\n\n`).join('');
      return stream(route, text + (server.logEnds === false ? '' : event('end', {})));
    }
    if (part === 'metrics') {
      const first = Number(searchParams.get('from') ?? 0);
      const only = searchParams.get('series');
      const wanted = (server.series?.[name] ?? []).filter((one) => only === null || one.name === only);
      const left = wanted.map((one) => ({ ...one, points: one.points.filter(([step]) => step >= first) }));
      const series = left.map((one) => ({ ...one, points: one.points.slice(0, server.pointsMax) }));
      const cut = series.filter(({ points }) => points.length === server.pointsMax).map(({ points }) => points.at(-1)[0] + 1);
      return json(route, { series, next: cut.length ? Math.min(...cut) : null });
    }
    if (part === 'logged') {
      const [, step, itemKind, ...itemName] = rest;
      const all = server.logged ?? [];
      if (step) {
        const { content } = all.find((item) => item.step === Number(step) && item.kind === itemKind && item.name === itemName.join('/'));
        return itemKind === 'image' ? route.fulfill({ contentType: 'image/png', body: content }) : json(route, content);
      }
      const wanted = all.filter((item) => item.step >= Number(searchParams.get('from') ?? 0)
        && [item.kind, null].includes(searchParams.get('kind')) && [item.name, null].includes(searchParams.get('name')));
      const values = searchParams.has('values');
      const items = wanted.map(({ content, ...item }) => (values ? { ...item, histogram: content } : item));
      return json(route, { items, next: null });
    }
    if (part === 'output') return json(route, { files: server.files ?? [] });
    if (part === 'checkpoints') return json(route, { checkpoints: server.checkpoints ?? [] });
    const details = server.details?.[name] ?? { attempts: [], phases: [], events: [] };
    return json(route, { ...found, ...details });
  });
}
