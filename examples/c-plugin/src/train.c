/* The training: softmax regression by gradient descent. */

#include <stdlib.h>
#include <string.h>

#include "network.h"

typedef saggar_plugin_datasets_borrow_batches_t batches_t;

/* What the job and its dataset give. */
typedef struct training {
    saggar_plugin_datasets_own_dataset_t dataset;
    saggar_plugin_variables_own_variables_t variables;
    network_t network;
    uint32_t batch, epochs;
    double rate;
    bool has_train_split;
    saggar_plugin_tensors_data_type_t label_type;
} training_t;

static bool is_text(const model_plugin_string_t *text, const char *expected) {
    return text->len == strlen(expected) && memcmp(text->ptr, expected, text->len) == 0;
}

/* Reads the sizes of the pictures and the number of classes from the dataset. */
static bool read_fields(training_t *training, network_config_t *config, plugin_error_t *error) {
    saggar_plugin_datasets_list_field_t fields;
    saggar_plugin_datasets_method_dataset_fields(saggar_plugin_datasets_borrow_dataset(training->dataset), &fields);
    for (size_t i = 0; i < fields.len; i++) {
        saggar_plugin_datasets_field_t *field = &fields.ptr[i];
        if (is_text(&field->name, "image") && field->item.shape.len == 2) {
            config->height = field->item.shape.ptr[0];
            config->width = field->item.shape.ptr[1];
        } else if (is_text(&field->name, "label")) {
            training->label_type = field->item.data_type;
            config->classes = field->classes.len > 0 ? (uint32_t)field->classes.len : 10;
        }
    }
    saggar_plugin_datasets_list_field_free(&fields);
    if (config->height == 0 || config->classes == 0) {
        return FAIL(error, "the dataset needs the fields `image`, of grey pictures, and `label`");
    }
    return true;
}

static bool open_training(training_t *training, plugin_error_t *error) {
    model_plugin_string_t parameters, mount;
    saggar_plugin_job_parameters(&parameters);
    training->epochs = (uint32_t)json_number(&parameters, "epochs", 20);
    training->batch = (uint32_t)json_number(&parameters, "batch", 32);
    training->rate = json_number(&parameters, "lr", 0.5);
    model_plugin_string_free(&parameters);
    model_plugin_string_set(&mount, "/data");
    if (!saggar_plugin_datasets_static_dataset_open(&mount, &training->dataset, error)) return false;
    model_plugin_list_string_t splits;
    saggar_plugin_datasets_method_dataset_splits(saggar_plugin_datasets_borrow_dataset(training->dataset), &splits);
    for (size_t i = 0; i < splits.len; i++) training->has_train_split |= is_text(&splits.ptr[i], "train");
    model_plugin_list_string_free(&splits);
    network_config_t config = {0};
    training->variables = saggar_plugin_variables_constructor_variables(saggar_plugin_job_seed());
    return read_fields(training, &config, error) &&
           network_open(&training->network, config, saggar_plugin_variables_borrow_variables(training->variables),
                        error);
}

/* Adds `variable = variable - rate * gradient` to the graph. */
static bool descend(builder_t builder, saggar_plugin_variables_own_variable_t variable, operand_t value,
                    operand_t gradient, double rate, plugin_error_t *error) {
    operand_t factor, step, next;
    return BUILD(scalar)(builder, SAGGAR_PLUGIN_TENSORS_DATA_TYPE_FLOAT32, rate, &factor, error) &&
           BUILD(mul)(builder, LEND(gradient), LEND(factor), &step, error) &&
           BUILD(sub)(builder, LEND(value), LEND(step), &next, error) &&
           BUILD(assign)(builder, saggar_plugin_variables_borrow_variable(variable), LEND(next), error);
}

/* Builds the graph of one step: its inputs are a batch, its output is the loss. */
static bool build_step(const training_t *training, saggar_plugin_graphs_own_graph_t *graph, plugin_error_t *error) {
    saggar_plugin_graphs_own_graph_builder_t owned = saggar_plugin_graphs_constructor_graph_builder();
    builder_t builder = saggar_plugin_graphs_borrow_graph_builder(owned);
    const network_t *network = &training->network;
    network_operands_t operands;
    operand_t label, loss;
    model_plugin_string_t name;
    model_plugin_string_set(&name, "label");
    uint32_t label_shape[] = {training->batch};
    saggar_plugin_graphs_descriptor_t label_type = {training->label_type, {label_shape, 1}};
    if (!network_build(network, training->batch, builder, &operands, error) ||
        !BUILD(input)(builder, &name, &label_type, &label, error) ||
        !BUILD(softmax_cross_entropy)(builder, LEND(operands.logits), LEND(label), &loss, error)) {
        return false;
    }
    saggar_plugin_graphs_borrow_operand_t parameters[] = {LEND(operands.weight), LEND(operands.bias)};
    saggar_plugin_graphs_list_borrow_operand_t wanted = {parameters, 2};
    saggar_plugin_graphs_list_own_operand_t gradients;
    if (!BUILD(gradients)(builder, LEND(loss), &wanted, &gradients, error) ||
        !descend(builder, network->weight, operands.weight, gradients.ptr[0], training->rate, error) ||
        !descend(builder, network->bias, operands.bias, gradients.ptr[1], training->rate, error)) {
        return false;
    }
    saggar_plugin_graphs_tuple2_string_borrow_operand_t output;
    model_plugin_string_set(&output.f0, "loss");
    output.f1 = LEND(loss);
    saggar_plugin_graphs_list_tuple2_string_borrow_operand_t outputs = {&output, 1};
    return saggar_plugin_graphs_static_graph_builder_build(owned, &outputs, graph, error);
}

static bool open_batches(const training_t *training, saggar_plugin_datasets_own_batches_t *batches,
                         plugin_error_t *error) {
    model_plugin_string_t names[2];
    model_plugin_string_set(&names[0], "image");
    model_plugin_string_set(&names[1], "label");
    model_plugin_list_string_t fields = {names, 2};
    saggar_plugin_datasets_batch_options_t options = {
        .size = training->batch,
        .shuffle_seed = {true, saggar_plugin_job_seed()},
        .drop_last = true,
        .split = {.is_some = training->has_train_split},
    };
    model_plugin_string_set(&options.split.val, "train");
    return saggar_plugin_datasets_method_dataset_batches(saggar_plugin_datasets_borrow_dataset(training->dataset),
                                                         &fields, &options, batches, error);
}

/* Runs the rest of an epoch on the host, and reports its mean loss. */
static bool run_epoch(batches_t batches, saggar_plugin_graphs_own_graph_t graph, uint64_t *step, uint64_t steps,
                      plugin_error_t *error) {
    saggar_plugin_datasets_run_result_t result;
    uint32_t full = (uint32_t)saggar_plugin_datasets_method_batches_full_batches(batches);
    if (!saggar_plugin_datasets_method_batches_run(batches, saggar_plugin_graphs_borrow_graph(graph), full, &result,
                                                   error)) {
        return false;
    }
    *step += result.steps;
    bool good = true;
    if (result.outputs.len == 1) {
        model_plugin_list_u8_t bytes;
        model_plugin_string_t name;
        model_plugin_string_set(&name, "loss");
        good = saggar_plugin_tensors_method_tensor_read(
            saggar_plugin_tensors_borrow_tensor(result.outputs.ptr[0].tensor), &bytes, error);
        if (good) {
            float loss;
            memcpy(&loss, bytes.ptr, sizeof loss);
            saggar_plugin_job_metric(*step, &name, loss);
            model_plugin_list_u8_free(&bytes);
        }
    }
    saggar_plugin_datasets_run_result_free(&result);
    saggar_plugin_job_progress(*step, steps);
    /* The end of the epoch: none, because incomplete batches are dropped. */
    saggar_plugin_datasets_option_list_named_tensor_t rest;
    good = good && saggar_plugin_datasets_method_batches_next(batches, &rest, error);
    if (good) saggar_plugin_datasets_option_list_named_tensor_free(&rest);
    return good;
}

/* Publishes the parameters, with the sizes that a prediction needs. */
static bool publish(const training_t *training, plugin_error_t *error) {
    network_config_t sizes = training->network.config;
    uint32_t numbers[] = {sizes.height, sizes.width, sizes.classes};
    const char *names[] = {"{\"height\":", ",\"width\":", ",\"classes\":"};
    char text[128];
    char *at = text;
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(names[i]);
        memcpy(at, names[i], length);
        at += length;
        char digits[10];
        size_t count = 0;
        for (uint32_t rest = numbers[i]; count == 0 || rest > 0; rest /= 10) digits[count++] = (char)('0' + rest % 10);
        while (count > 0) *at++ = digits[--count];
    }
    memcpy(at, "}", 2);
    model_plugin_string_t model, config;
    model_plugin_string_set(&model, "softmax-c");
    model_plugin_string_set(&config, text);
    uint64_t version;
    return saggar_plugin_job_publish(&model, saggar_plugin_variables_borrow_variables(training->variables), &config,
                                     &version, error);
}

bool exports_saggar_plugin_trainer_train(plugin_error_t *error) {
    training_t training = {0};
    saggar_plugin_graphs_own_graph_t graph;
    saggar_plugin_datasets_own_batches_t owned;
    if (!open_training(&training, error) || !build_step(&training, &graph, error) ||
        !open_batches(&training, &owned, error)) {
        return false;
    }
    batches_t batches = saggar_plugin_datasets_borrow_batches(owned);
    saggar_plugin_job_list_borrow_batches_t positions = {&batches, 1};
    saggar_plugin_variables_borrow_variables_t variables =
        saggar_plugin_variables_borrow_variables(training.variables);
    model_plugin_option_tuple2_u64_list_u8_t saved;
    if (!saggar_plugin_job_resume(variables, &positions, &saved, error)) return false;
    uint64_t step = saved.is_some ? saved.val.f0 : 0;
    model_plugin_option_tuple2_u64_list_u8_free(&saved);
    uint64_t steps = training.epochs * saggar_plugin_datasets_method_batches_full_batches(batches);
    if (steps == 0) return FAIL(error, "the dataset has fewer items than `batch`: take a smaller one");
    model_plugin_list_u8_t state = {NULL, 0};
    for (bool goes_on = true; step < steps;) {
        if (!run_epoch(batches, graph, &step, steps, error) ||
            !saggar_plugin_job_boundary(step, variables, &positions, &state, &goes_on, error)) {
            return false;
        }
        /* The job is stopping, and its state is saved. */
        if (!goes_on) return true;
    }
    return publish(&training, error);
}
