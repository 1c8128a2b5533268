/** Exponential moving averages of the parameters. */

const averageOf = (variables, { name, shape }) => variables.root.training(`average/${name}`, shape);

/** Adds the update of the averages to the graph, after the optimizer has assigned the parameters. */
export function updateAverages(graph, variables, decay) {
    const counter = variables.training('average/step', [], 'int32');
    const step = graph.stored(counter);
    graph.assign(counter, step.add(1));
    // The first step ignores the initial zeros, and the decay grows with the step so that early values have less weight.
    const done = step.to('float32');
    const old = done.div(done.add(9)).clamp(undefined, decay);
    const now = old.neg().add(1);
    for (const parameter of variables.parameters()) {
        const mean = averageOf(variables, parameter);
        const value = graph.assigned.get(parameter.name) ?? graph.stored(parameter);
        graph.assign(mean, graph.stored(mean).mul(old).add(value.mul(now)));
    }
}

/** Returns the averages by the names of the parameters. */
export function averagesByParameter(variables) {
    return new Map(variables.parameters().map((parameter) => [parameter.name, averageOf(variables, parameter)]));
}

/** Copies the averages to the parameters. */
export function copyToParameters(variables) {
    for (const parameter of variables.parameters()) parameter.write(averageOf(variables, parameter).read());
}
