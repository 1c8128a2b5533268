// What every control of the playground has around it.

import { h } from './dom.js';

/** The frame of a control: a name, what it takes, and the control. */
export function framed(port, control, hint) {
  const kind = `${port.dtype}${port.shape.length ? ` [${port.shape.join(', ')}]` : ''}`;
  const optional = port.default === null ? '' : ', optional';
  return h(
    'fieldset',
    { class: 'field', 'data-field': port.name },
    h('legend', {}, h('b', {}, port.name), h('span', { class: 'note' }, ` ${hint ?? kind}${optional}`)),
    control,
  );
}
