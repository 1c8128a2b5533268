/* Predictions: the probability of each class. */

#include <stdlib.h>

#include "network.h"

enum { SIZES = 3 };
static const uint32_t BATCH_SIZES[SIZES] = {1, 8, 32};

struct exports_saggar_plugin_predictor_model_t {
    network_t network;
    /* One graph for each batch size, built when it is first needed. */
    saggar_plugin_graphs_own_graph_t graphs[SIZES];
    bool is_built[SIZES];
};

typedef exports_saggar_plugin_predictor_model_t model_t;
typedef exports_saggar_plugin_predictor_list_named_tensor_t tensors_t;

static bool build_graph(model_t *model, size_t index, plugin_error_t *error) {
    saggar_plugin_graphs_own_graph_builder_t owned = saggar_plugin_graphs_constructor_graph_builder();
    builder_t builder = saggar_plugin_graphs_borrow_graph_builder(owned);
    network_operands_t operands;
    operand_t probabilities, label;
    if (!network_build(&model->network, BATCH_SIZES[index], builder, &operands, error) ||
        !BUILD(softmax)(builder, LEND(operands.logits), 1, &probabilities, error) ||
        !BUILD(arg_max)(builder, LEND(operands.logits), 1, false, &label, error)) {
        return false;
    }
    saggar_plugin_graphs_tuple2_string_borrow_operand_t named[2] = {{.f1 = LEND(label)}, {.f1 = LEND(probabilities)}};
    model_plugin_string_set(&named[0].f0, "label");
    model_plugin_string_set(&named[1].f0, "probabilities");
    saggar_plugin_graphs_list_tuple2_string_borrow_operand_t outputs = {named, 2};
    model->is_built[index] =
        saggar_plugin_graphs_static_graph_builder_build(owned, &outputs, &model->graphs[index], error);
    return model->is_built[index];
}

bool exports_saggar_plugin_predictor_static_model_load(exports_saggar_plugin_predictor_own_variables_t variables,
                                                       model_plugin_string_t *config,
                                                       exports_saggar_plugin_predictor_own_model_t *loaded,
                                                       plugin_error_t *error) {
    network_config_t sizes = {
        .height = (uint32_t)json_number(config, "height", 0),
        .width = (uint32_t)json_number(config, "width", 0),
        .classes = (uint32_t)json_number(config, "classes", 0),
    };
    model_plugin_string_free(config);
    model_t *model = calloc(1, sizeof *model);
    if (model == NULL) return FAIL(error, "there is no memory for the model");
    if (sizes.height == 0 || sizes.width == 0 || sizes.classes == 0) {
        return FAIL(error, "the configuration needs `height`, `width` and `classes`");
    }
    if (!network_open(&model->network, sizes, saggar_plugin_variables_borrow_variables(variables), error) ||
        !build_graph(model, 0, error)) {
        return false;
    }
    *loaded = exports_saggar_plugin_predictor_model_new(model);
    return true;
}

/* What is returned to the host is freed after the call, so it is allocated. */
static exports_saggar_plugin_predictor_port_t port(const char *name, saggar_plugin_tensors_data_type_t type,
                                                   const uint32_t *shape, size_t rank, const char *semantics) {
    exports_saggar_plugin_predictor_port_t port = {.item = {type, {NULL, rank}}, .semantics = {.is_some = true}};
    model_plugin_string_dup(&port.name, name);
    model_plugin_string_dup(&port.semantics.val, semantics);
    if (rank > 0) {
        port.item.shape.ptr = calloc(rank, sizeof *shape);
        for (size_t i = 0; i < rank; i++) port.item.shape.ptr[i] = shape[i];
    }
    return port;
}

void exports_saggar_plugin_predictor_method_model_signature(model_t *model,
                                                            exports_saggar_plugin_predictor_signature_t *signature) {
    network_config_t sizes = model->network.config;
    uint32_t image[] = {sizes.height, sizes.width};
    *signature = (exports_saggar_plugin_predictor_signature_t){0};
    signature->inputs.ptr = calloc(1, sizeof *signature->inputs.ptr);
    signature->inputs.len = 1;
    signature->inputs.ptr[0] = port("image", SAGGAR_PLUGIN_TENSORS_DATA_TYPE_UINT8, image, 2, "image");
    signature->outputs.ptr = calloc(2, sizeof *signature->outputs.ptr);
    signature->outputs.len = 2;
    signature->outputs.ptr[0] = port("label", SAGGAR_PLUGIN_TENSORS_DATA_TYPE_INT32, NULL, 0, "class");
    signature->outputs.ptr[1] =
        port("probabilities", SAGGAR_PLUGIN_TENSORS_DATA_TYPE_FLOAT32, &sizes.classes, 1, "probabilities");
    signature->batch_sizes.ptr = calloc(SIZES, sizeof *BATCH_SIZES);
    signature->batch_sizes.len = SIZES;
    for (size_t i = 0; i < SIZES; i++) signature->batch_sizes.ptr[i] = BATCH_SIZES[i];
}

bool exports_saggar_plugin_predictor_method_model_predict(model_t *model, tensors_t *inputs, tensors_t *outputs,
                                                          plugin_error_t *error) {
    saggar_plugin_graphs_tuple2_string_borrow_tensor_t given = {
        .f0 = inputs->ptr[0].name,
        .f1 = saggar_plugin_tensors_borrow_tensor(inputs->ptr[0].tensor),
    };
    saggar_plugin_tensors_descriptor_t type;
    saggar_plugin_tensors_method_tensor_descriptor(given.f1, &type);
    uint32_t batch = type.shape.ptr[0];
    saggar_plugin_tensors_descriptor_free(&type);
    size_t index = 0;
    while (index < SIZES && BATCH_SIZES[index] != batch) index++;
    bool good = index < SIZES || FAIL(error, "the batch has none of the signature's sizes");
    good = good && (model->is_built[index] || build_graph(model, index, error));
    if (good) {
        saggar_plugin_graphs_list_tuple2_string_borrow_tensor_t named = {&given, 1};
        good = saggar_plugin_graphs_method_graph_dispatch(saggar_plugin_graphs_borrow_graph(model->graphs[index]),
                                                          &named, (saggar_plugin_graphs_list_named_tensor_t *)outputs,
                                                          error);
    }
    exports_saggar_plugin_predictor_list_named_tensor_free(inputs);
    return good;
}

/* Never called: the host frees an instance with all its memory. */
void exports_saggar_plugin_predictor_model_destructor(model_t *model) {
    free(model);
}
