/* The network, and what the training and the predictions share. */

#ifndef NETWORK_H
#define NETWORK_H

#include "model_plugin.h"

typedef saggar_plugin_tensors_error_t plugin_error_t;
typedef saggar_plugin_graphs_own_operand_t operand_t;
typedef saggar_plugin_graphs_borrow_graph_builder_t builder_t;

/* A call of the graph builder, by its name in `wit/graphs.wit`. */
#define BUILD(name) saggar_plugin_graphs_method_graph_builder_##name
/* Lends an operand to a call. */
#define LEND(operand) saggar_plugin_graphs_borrow_operand(operand)

/* The error of this line: sets `error`, and is false. */
#define FAIL(error, text) fail(error, text, __FILE__, __LINE__)

/* Sizes that a published version needs again. */
typedef struct network_config {
    uint32_t height, width, classes;
} network_config_t;

/* One linear layer: `logits = image / 255 * weight + bias`. */
typedef struct network {
    network_config_t config;
    saggar_plugin_variables_own_variable_t weight, bias;
} network_t;

/* The operands of a graph of the network. */
typedef struct network_operands {
    operand_t weight, bias, logits;
} network_operands_t;

bool fail(plugin_error_t *error, const char *message, const char *file, int line);

/* Creates the parameters, or finds those of a published version. */
bool network_open(network_t *network, network_config_t config, saggar_plugin_variables_borrow_variables_t variables,
                  plugin_error_t *error);

/* Adds the input `image`, `uint8[batch, height, width]`, and the logits, `float32[batch, classes]`. */
bool network_build(const network_t *network, uint32_t batch, builder_t builder, network_operands_t *operands,
                   plugin_error_t *error);

/* Reads `"name": number` of a JSON object, as the host writes it; `otherwise` if there is none. */
double json_number(const model_plugin_string_t *json, const char *name, double otherwise);

#endif
